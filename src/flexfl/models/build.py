"""A network by name, initialised from the run's own stream."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flexfl.errors import Fault, InputError
from flexfl.models.networks import cnn, mlp
from flexfl.spec.costs import GIVEN
from flexfl.spec.names import import_object, is_import_path
from flexfl.spec.sections import ModelSpec
from flexfl.streams import Streams

NETWORKS = {"mlp": mlp, "cnn": cnn}


def build_model(spec: ModelSpec, streams: Streams) -> nn.Module:
    """The network that `spec` names; "module:function" calls the user's own with its options."""
    if is_import_path(spec.name):
        make = import_object(spec.name, "model.name")
    elif spec.name.startswith(GIVEN):
        rule = "was a Python object when this spec ran"
        raise InputError([Fault("model.name", rule, spec.name, "hand it to flexfl.simulate again")])
    else:
        make = NETWORKS[spec.name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(streams.torch_seed("init", 0))
        try:
            module = make(**spec.options)
        except (TypeError, ValueError, RuntimeError) as error:
            fault = Fault("model.options", f"must fit {spec.name} ({error})", spec.options, "adjust them")
            raise InputError([fault]) from error
    if not isinstance(module, nn.Module):
        rule = "must give an nn.Module"
        raise InputError([Fault("model.name", rule, type(module).__name__, "return the module itself")])
    return module


def check_model(module: nn.Module, sample: Tensor, classes: int | None) -> list[Fault]:
    """What keeps this module from being trained on such samples."""
    faults = []
    if not any(p.requires_grad for p in module.parameters()):
        faults.append(Fault("model", "must have trainable parameters", 0, "set requires_grad"))
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            rule = "may not hold BatchNorm: its statistics mix clients"
            faults.append(Fault(f"model.{name}", rule, type(part).__name__, "use nn.GroupNorm"))
    if faults:
        return faults
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            output = module(sample)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        remedy = "adjust the model, or reshape the data"
        return [
            Fault("model", f"must accept samples of the data ({reason})", tuple(sample.shape[1:]), remedy)
        ]
    if not isinstance(output, Tensor):
        rule = "must give one tensor of outputs"
        return [Fault("model", rule, type(output).__name__, "wrap it in a module that returns the tensor")]
    if classes is not None and (output.ndim != 2 or output.shape[1] < classes):
        rule = f"must give one output for each of the {classes} classes"
        remedy = f"end with nn.Linear(…, {classes})"
        faults.append(Fault("model", rule, tuple(output.shape[1:]), remedy))
    return faults

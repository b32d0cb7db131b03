"""Building a network by name, initialised from the run's random stream, and checking it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from flexfl.errors import Fault, InputError
from flexfl.models import NETWORKS, networks
from flexfl.registry import Family, is_given, must_be_given_again
from flexfl.streams import Streams
from flexfl.trees import Tree, call, in_words

Loss = Callable[[Any, Any], Tensor]
"""Outputs and labels of one minibatch → its mean loss; samples without labels are passed whole instead."""

Accuracy = Callable[[Any, Any], Any]
"""Outputs and labels, as a loss gets them → the share of samples that are right."""

MODELS = Family("network", {name: getattr(networks, name) for name in NETWORKS}, key="name")


def build_model(name: str, options: Mapping[str, Any], streams: Streams) -> nn.Module:
    """Return a network, initialised from the run's own stream.

    Args:
        name: one that ships, or "module:function" of one's own.
        options: what it is called with.
        streams: of the run.

    Raises:
        InputError: there is none of that name, or its options do not fit.
    """
    if is_given(name):
        raise must_be_given_again("model.name", name)
    make = MODELS.member(name, "model.name")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(streams.torch_seed("init", 0))
        module = MODELS.call(make, name, options, "model.options")
    if not isinstance(module, nn.Module):
        rule = "must return an nn.Module"
        raise InputError([Fault("model.name", rule, type(module).__name__, "return the module itself")])
    return module


def returned_loss(outputs: Any, batch: Any) -> Tensor:
    """Return the loss that a model has computed itself: outputs.loss, outputs["loss"], or the one number.

    >>> returned_loss({"loss": torch.tensor(0.5)}, None)
    tensor(0.5000)
    """
    found = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if found is None and isinstance(outputs, Tensor) and outputs.ndim == 0:
        found = outputs
    if found is None:
        kind = type(outputs).__name__
        raise TypeError(f"the samples have no labels, and {kind} holds no loss of the model's own")
    return found  # type: ignore[no-any-return]


def check_model(
    module: nn.Module,
    sample: Tree,
    labels: Tree,
    classes: int | None,
    loss: Loss,
    *,
    plain_loss: bool,
    least: int = 0,
    accuracy: Accuracy | None = None,
) -> list[Fault]:
    """Return the faults that prevent this module from being trained on these samples with this loss.

    Args:
        module: The network.
        sample: A minibatch of features.
        labels: Its labels.
        classes: Number of classes; None if labels are not classes.
        loss: The loss.
        plain_loss: Whether it is our default loss, whose requirements on outputs and labels are known.
        least: The least class of all labels.
        accuracy: The user's function for the share of samples that are right.
    """
    if faults := _parameter_faults(module):
        return faults
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        # On a copy: a forward pass may change buffers.
        trial = copy.deepcopy(module)
        output = _attempt(lambda: trial(sample) if isinstance(sample, Tensor) else call(trial, sample))
        if fault := _output_fault(output, sample, labels, classes, plain_loss=plain_loss, least=least):
            return [fault]
        value = _attempt(lambda: loss(output, labels))
    fault = _loss_fault(value, output, labels) or _accuracy_fault(accuracy, output, labels)
    return [] if fault is None else [fault]


def _parameter_faults(module: nn.Module) -> list[Fault]:
    """Return faults of the parameters and layers, found without a forward pass."""
    faults = []
    if not any(p.requires_grad for p in module.parameters()):
        faults.append(Fault("model", "must have trainable parameters", 0, "set requires_grad"))
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            remedy = "pass one sample through the model first, or specify the shapes"
            faults.append(Fault(f"model.{name}", "must have a shape", type(parameter).__name__, remedy))
        elif not parameter.numel():
            rule, remedy = "must hold at least one number", "make the layer larger, or leave it out"
            faults.append(Fault(f"model.{name}", rule, tuple(parameter.shape), remedy))
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training:
            rule = "may not hold BatchNorm in training mode: its statistics mix clients"
            remedy = "use nn.GroupNorm, or freeze it with .eval()"
            faults.append(Fault(f"model.{name}", rule, type(part).__name__, remedy))
    return faults


def _output_fault(
    output: Any, sample: Tree, labels: Tree, classes: int | None, *, plain_loss: bool, least: int
) -> Fault | None:
    """Return the fault of a model's output, which is a text if the model has failed."""
    if isinstance(output, str):
        if isinstance(sample, Tensor) and not sample.is_floating_point():  # and no embedding takes it
            is_image = sample.dtype == torch.uint8
            remedy = "convert to float32, e.g. x / 255" if is_image else "convert to float32: x.float()"
            return Fault("data (features)", f"must fit the model ({output})", str(sample.dtype), remedy)
        rule = f"must accept samples of the data ({output})"
        remedy = "adjust the model, or reshape the data"
        if isinstance(sample, Tensor):
            return Fault("model", rule, tuple(sample.shape[1:]), remedy)
        remedy += ", or name what the model takes: features=[…] in Federated.split"
        return Fault("model", rule, in_words(sample), remedy)
    if plain_loss and not isinstance(output, Tensor):
        rule = "must return one tensor of outputs"
        remedy = "wrap it in a module that returns it, or give loss=lambda outputs, labels: …"
        return Fault("model", rule, type(output).__name__, remedy)
    if plain_loss and classes is not None and (output.ndim != 2 or output.shape[1] < classes):
        if least > 0 and output.ndim == 2 and output.shape[1] >= classes - least:
            found = f"{least} to {classes - 1}"
            return Fault("data (labels)", "must be classes from 0 on", found, f"give y - {least}")
        rule = f"must return one output for each of the {classes} classes"
        return Fault("model", rule, tuple(output.shape[1:]), f"end with nn.Linear(…, {classes})")
    if plain_loss and labels.is_floating_point() and output.shape != labels.shape:
        are_whole = labels.ndim == 1 and bool((labels == labels.round()).all())
        remedy = "for classes give y.long(); else reshape the labels, or give a loss"
        remedy = remedy if are_whole else "reshape the labels, or give a loss"
        rule = f"must have outputs of the labels' shape {tuple(labels.shape[1:])} for the squared error"
        return Fault("model", rule, tuple(output.shape[1:]), remedy)
    return None


def _loss_fault(value: Any, output: Any, labels: Tree) -> Fault | None:
    """Return the fault of a loss's value, which is a text if the loss has failed."""
    if isinstance(value, str):
        rule = f"must accept the model's outputs and the labels ({value})"
        if isinstance(output, Tensor) and isinstance(labels, Tensor):
            shapes = f"outputs {tuple(output.shape)}, labels {tuple(labels.shape)} of {labels.dtype}"
            column = labels.ndim == 2 and labels.shape[1] == 1
            remedy = (
                "give the labels as y.squeeze(1)" if column else "reshape the labels, or give another loss"
            )
            return Fault("loss", rule, shapes, remedy)
        remedy = 'give loss=lambda outputs, batch: …, let the model return {"loss": …}, or name a label'
        shapes = f"outputs: {type(output).__name__}, labels: {in_words(labels)}"
        return Fault("loss", rule, shapes, remedy)
    if not isinstance(value, Tensor) or value.ndim != 0:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        return Fault("loss", "must return the mean loss of a minibatch, one number", shape, "take the mean")
    if not value.requires_grad:
        rule = "must be differentiable with respect to the model's parameters"
        return Fault("loss", rule, "a loss without gradient", "use one like cross-entropy, not an accuracy")
    return None


def _accuracy_fault(accuracy: Accuracy | None, output: Any, labels: Tree) -> Fault | None:
    """Return the fault of a user's accuracy."""
    if accuracy is None:
        return None
    with torch.no_grad():
        value = _attempt(lambda: float(accuracy(output, labels)))
    if isinstance(value, str):
        rule = f"must accept the model's outputs and the labels ({value})"
        return Fault("accuracy", rule, type(output).__name__, "return the share that is right")
    if not 0 <= value <= 1:
        rule = "must return the share of samples that are right, from 0 to 1"
        return Fault("accuracy", rule, value, "divide by the number of samples")
    return None


def _attempt(work: Callable[[], Any]) -> Any:
    """Return the result of `work`, or the first line of its error message."""
    try:
        return work()
    except Exception as error:  # a user's module or loss may raise anything
        return (str(error) or type(error).__name__).splitlines()[0]

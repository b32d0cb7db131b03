(() => {
  "use strict";
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const places = Object.keys(charts).map((key) => document.getElementById("chart-" + key));

  const axesOf = (layout) => Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name));

  // Colours come from the stylesheet, so that the charts follow the light or dark scheme.
  const look = (place) => {
    const style = getComputedStyle(document.documentElement);
    const [ink, muted, rule, paper] = ["--ink", "--muted", "--rule", "--raised"].map((name) =>
      style.getPropertyValue(name).trim());
    const colours = {
      "font.color": muted, "hoverlabel.bgcolor": paper, "hoverlabel.font.color": ink,
      "modebar.color": muted, "modebar.activecolor": ink,
    };
    axesOf(place.layout).forEach((name) => ["gridcolor", "linecolor", "tickcolor", "zerolinecolor"]
      .forEach((part) => { colours[name + "." + part] = rule; }));
    return colours;
  };

  const family = getComputedStyle(document.body).fontFamily;
  const common = {
    margin: { l: 70, r: 20, t: 28, b: 44 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family, size: 12 },
    hoverlabel: { font: { family, size: 12 }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)" },
    dragmode: "zoom",
  };
  const config = {
    responsive: true, displaylogo: false,
    // Listed explicitly: plotly's default buttons include one that uploads the chart.
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    plotlyServerURL: "",
  };
  places.forEach((place, index) => {
    const { data, layout } = Object.values(charts)[index];
    const axes = Object.fromEntries(axesOf(layout).map((name) => [name, name.startsWith("x")
      ? { ...layout[name], showgrid: false, showline: true, ticks: "outside", zeroline: false }
      : { ...layout[name], automargin: true, title: { ...layout[name].title, standoff: 14, font: { size: 11 } } },
    ]));
    Plotly.newPlot(place, data, { ...layout, ...common, ...axes }, config)
      .then(() => Plotly.relayout(place, look(place)));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    places.forEach((place) => Plotly.relayout(place, look(place)));
  });

  // One legend for all charts: a group is hidden or shown in all of them.
  const buttons = [...document.querySelectorAll("nav button")];
  const isOn = (button) => button.getAttribute("aria-pressed") === "true";
  const apply = () => {
    const on = Object.fromEntries(buttons.map((button) => [button.dataset.group, isOn(button)]));
    places.forEach((place) => {
      const visible = place.data.map((trace) => on[trace.legendgroup] ?? true);
      Plotly.restyle(place, { visible });
    });
  };
  const set = (button, value) => button.setAttribute("aria-pressed", String(value));
  buttons.forEach((button) => {
    button.addEventListener("click", () => { set(button, !isOn(button)); apply(); });
    button.addEventListener("dblclick", () => {
      const beside = buttons.filter((other) => other.parentElement === button.parentElement);
      const alone = beside.every((other) => other === button || !isOn(other));
      beside.forEach((other) => set(other, alone || other === button));
      apply();
    });
  });
})();

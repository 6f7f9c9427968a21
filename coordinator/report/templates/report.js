"use strict";
// Each figure is drawn as wide as its place, with tooltips. One that cannot be drawn opens its numbers.
(function () {
  var PHONE = 560, COLUMN = 780, LETTER = 7, AXIS = 90;  // pixels
  // For a page that is wider than a figure by itself: panels that share the width.
  function widen(spec, width) {
    if (!spec.concat || width <= COLUMN) { return; }
    spec.concat.forEach(function (panel) {
      panel.width += Math.floor((width - COLUMN) / spec.columns);
      limit(panel);
    });
  }
  // The heading of a panel is not wider than the panel.
  function limit(panel) { if (panel.title && panel.title.text) { panel.title.limit = panel.width + AXIS / 2; } }
  // For a phone: the entries of legends and the panels of a figure below each other, long names of places inclined.
  function narrow(spec, width) {
    spec.config.legend.columns = 1;
    spec.config.axis.tickCount = 4;
    var names = Math.min(longest(spec) * LETTER, width / 2);
    spec.config.legend.labelLimit = width - names - 45;
    spec.config.legend.layout = { top: { direction: "vertical" } };
    if (spec.concat) { spec.columns = 1; }
    (spec.concat || [spec]).forEach(function (panel) {
      var layers = panel.layer || [panel];
      var lying = layers.some(lies);
      if (spec.concat) {
        panel.width = width - (lying ? names + 45 : AXIS);
        limit(panel);
      }
      layers.forEach(function (layer) {
        var channels = layer.encoding || {};
        Object.keys(channels).forEach(function (name) {
          if (channels[name].legend && channels[name].legend.columns) { channels[name].legend.columns = 1; }
        });
        if (lying && channels.y && channels.y.axis) { channels.y.axis.labelLimit = names; }
        if (channels.x && channels.x.type === "nominal" && channels.x.axis) { incline(channels.x, panel, width - AXIS); }
      });
    });
  }
  // Whether the names of places are at the left; a legend then begins behind them.
  function lies(layer) { return Boolean(layer.encoding) && (layer.encoding.y || {}).type === "nominal"; }
  // Letters of the longest name at the left of a panel.
  function longest(spec) {
    var most = 12;
    (spec.concat || [spec]).forEach(function (panel) {
      (panel.layer || [panel]).filter(lies).forEach(function (layer) {
        ((panel.data || spec.data || {}).values || []).forEach(function (value) {
          most = Math.max(most, String(value[layer.encoding.y.field] || "").length);
        });
      });
    });
    return most;
  }
  function incline(axis, panel, width) {
    var names = {};
    ((panel.data || {}).values || []).forEach(function (value) { names[value[axis.field]] = true; });
    names = Object.keys(names);
    var most = Math.max.apply(null, names.map(function (name) { return name.length; }));
    if (most * LETTER * names.length > width) { axis.axis.labelAngle = -40; }
  }
  var specs = JSON.parse(document.getElementById("specs").textContent);
  function draw(name) {
    var place = document.getElementById("plot-" + name);
    if (place.clientWidth < PHONE) { narrow(specs[name], place.clientWidth); } else { widen(specs[name], place.clientWidth); }
    var stage = document.createElement("div");
    stage.className = "plot";
    place.parentNode.insertBefore(stage, place);
    vegaEmbed(stage, specs[name], { renderer: "svg", actions: false }).then(function () {
      place.remove();
      stage.id = "plot-" + name;
      stage.dataset.drawn = "yes";
      stage.setAttribute("role", "img");
      stage.setAttribute("aria-label", place.dataset.alt);
    }, function (fault) {
      stage.remove();
      place.style.display = "none";
      place.parentNode.querySelector("details.data").open = true;
      console.error(name + " could not be drawn: " + fault);
    });
  }
  // A chart in a fold has no width before the fold is open.
  Object.keys(specs).forEach(function (name) {
    var fold = document.getElementById("plot-" + name).closest("details");
    if (!fold || fold.open) { draw(name); } else { fold.addEventListener("toggle", function () { draw(name); }, { once: true }); }
  });
  // The section on the screen, in the navigation.
  var heads = Array.prototype.slice.call(document.querySelectorAll("h2[id]"));
  function mark() {
    var here = heads.filter(function (head) { return head.getBoundingClientRect().top < 120; }).pop() || heads[0];
    document.querySelectorAll("nav a").forEach(function (link) {
      link.classList.toggle("here", Boolean(here) && link.getAttribute("href") === "#" + here.id);
    });
  }
  window.addEventListener("scroll", mark, { passive: true });
  mark();
  // On paper the tables of sections and the evidence of what is not passed are open; the numbers of figures are not printed, nor
  // charts that were never opened: they cannot be drawn in time.
  var closed = [];
  window.addEventListener("beforeprint", function () {
    closed = Array.prototype.filter.call(document.querySelectorAll("details.data, .bad details.why, .warn details.why, .card > details, .how"), function (one) { return !one.open && !one.querySelector(".plot:empty"); });
    closed.forEach(function (one) { one.open = true; });
  });
  window.addEventListener("afterprint", function () { closed.forEach(function (one) { one.open = false; }); });
}());

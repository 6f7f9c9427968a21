"use strict";
// Each figure is a picture already; where scripts run it becomes a chart as wide as its place, with tooltips. A chart that cannot be
// drawn leaves its picture.
(function () {
  var specs = JSON.parse(document.getElementById("specs").textContent);
  Object.keys(specs).forEach(function (name) {
    var place = document.getElementById("plot-" + name);
    // On a phone legends stand below each other: beside each other they are cut off.
    if (place.clientWidth < 560) {
      specs[name].config.legend.columns = 1;
      specs[name].config.legend.layout = { top: { direction: "vertical" } };
    }
    var stage = document.createElement("div");
    stage.className = "plot";
    place.parentNode.insertBefore(stage, place);
    vegaEmbed(stage, specs[name], { renderer: "svg", actions: false }).then(function () {
      place.remove();
      stage.id = "plot-" + name;
      stage.dataset.drawn = "yes";
    }, function (fault) {
      stage.remove();
      console.error(name + " could not be drawn: " + fault);
    });
  });
  // On paper every table is open.
  var closed = [];
  window.addEventListener("beforeprint", function () {
    closed = Array.prototype.filter.call(document.querySelectorAll("details.data"), function (one) { return !one.open; });
    closed.forEach(function (one) { one.open = true; });
  });
  window.addEventListener("afterprint", function () { closed.forEach(function (one) { one.open = false; }); });
}());

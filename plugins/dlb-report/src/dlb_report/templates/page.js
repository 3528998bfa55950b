"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const make = (name, attributes, parent) => {
    const made = parent.namespaceURI === NS ? document.createElementNS(NS, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  };

  // The choice of colours is kept, where the browser keeps anything of a file.
  const themes = [...document.querySelectorAll("input[name=theme]")];
  try {
    const kept = localStorage.getItem("dlb-theme");
    const chosen = themes.find((each) => each.id === kept);
    if (chosen) chosen.checked = true;
  } catch { /* storage is off */ }
  for (const each of themes) each.addEventListener("change", () => {
    try { localStorage.setItem("dlb-theme", each.id); } catch { /* storage is off */ }
  });

  // The section that is read is marked in the list of sections.
  const links = new Map([...document.querySelectorAll(".bar nav a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) {
      for (const [name, link] of links) {
        link.classList.toggle("here", name === entry.target.id);
        if (name === entry.target.id) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-25% 0px -70% 0px" });
  for (const name of links.keys()) { const found = document.getElementById(name); if (found) seen.observe(found); }

  // Tables: sorted by a column, and the long one searched.
  const number = (text) => {
    const found = /^-?[\d,]*\.?\d+(?:e[+-]?\d+)?/i.exec(text.trim());
    return found ? parseFloat(found[0].replaceAll(",", "")) : NaN;
  };
  for (const table of document.querySelectorAll("table")) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      const text = head.textContent.trim();
      if (!text) return;
      head.textContent = "";
      const button = make("button", { type: "button" }, head);
      button.textContent = text;
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...body.rows].map((row) => [row, row.cells[place] ? row.cells[place].textContent : ""]);
        const numeric = rows.every(([, each]) => each === "-" || each === "" || !Number.isNaN(number(each)));
        rows.sort(([, a], [, b]) => (up ? 1 : -1) * (numeric
          ? (Number.isNaN(number(a)) ? -Infinity : number(a)) - (Number.isNaN(number(b)) ? -Infinity : number(b))
          : a.localeCompare(b)) || 0);
        body.append(...rows.map(([row]) => row));
      });
    });
    if (body.rows.length > 15) {
      const around = table.parentElement;
      const search = document.createElement("input");
      search.className = "search";
      search.type = "search";
      search.placeholder = "Search these rows";
      search.setAttribute("aria-label", "Search these rows");
      around.before(search);
      search.addEventListener("input", () => {
        const words = search.value.toLowerCase().split(/\s+/);
        for (const row of body.rows) {
          const text = row.textContent.toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
        }
      });
    }
  }

  // Charts with scales: values under the pointer, a part chosen by dragging, lines shown or hidden.
  const short = (value) => {
    if (!Number.isFinite(value)) return "-";
    if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return value.toExponential(2);
    return value.toLocaleString("en", { maximumSignificantDigits: 4 });
  };
  for (const plot of document.querySelectorAll("svg.plot[data-x]")) {
    const figure = plot.closest("figure");
    const stretched = plot.querySelector(".stretched");
    if (!stretched) continue;
    const [xLow, xHigh] = plot.dataset.x.split(" ").map(Number);
    const [yLow, yHigh] = plot.dataset.y.split(" ").map(Number);
    const log = { x: "xlog" in plot.dataset, y: "ylog" in plot.dataset };
    const height = plot.height.baseVal.value;
    const value = (share, low, high, logarithmic) =>
      logarithmic ? low * Math.pow(high / low, share) : low + share * (high - low);
    const lines = [...plot.querySelectorAll(".line[data-name]")].map((path) => ({
      path,
      name: path.dataset.name,
      points: (path.getAttribute("d").match(/-?\d+ -?\d+/g) || []).map((each) => each.split(" ").map(Number)),
    }));
    let from = 0, to = 1;
    const cursor = make("line", { class: "cursor off", y1: 0, y2: height }, plot);
    const choice = make("rect", { class: "choice off", y: 0, height }, plot);
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    figure.append(tip);

    const share = (event) => {
      const box = stretched.getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    const nearest = (points, at) => {
      let low = 0, high = points.length - 1;
      while (high - low > 1) { const middle = (low + high) >> 1; if (points[middle][0] < at) low = middle; else high = middle; }
      return Math.abs(points[low][0] - at) <= Math.abs(points[high][0] - at) ? points[low] : points[high];
    };
    const show = (event) => {
      const at = (from + share(event) * (to - from)) * 10000;
      const texts = [];
      let place = null;
      for (const line of lines) {
        if (line.path.classList.contains("off") || !line.points.length) continue;
        const found = nearest(line.points, at);
        if (place === null || Math.abs(found[0] - at) < Math.abs(place - at)) place = found[0];
        texts.push(`${line.name}: ${short(value(1 - found[1] / 10000, yLow, yHigh, log.y))}`);
      }
      if (place === null) return;
      const across = (place / 10000 - from) / (to - from);
      if (across < 0 || across > 1) { hide(); return; }
      cursor.setAttribute("x1", `${across * 100}%`);
      cursor.setAttribute("x2", `${across * 100}%`);
      cursor.classList.remove("off");
      tip.textContent = [`${plot.dataset.xname}: ${short(value(place / 10000, xLow, xHigh, log.x))}`, ...texts.slice(0, 12)].join("\n");
      tip.hidden = false;
      const box = stretched.getBoundingClientRect(), outer = figure.getBoundingClientRect();
      const left = box.left - outer.left + across * box.width;
      const beside = left + 14 + tip.offsetWidth > outer.width ? left - tip.offsetWidth - 14 : left + 14;
      tip.style.setProperty("transform", `translate(${Math.max(0, beside)}px, ${box.top - outer.top + 8}px)`);
    };
    const hide = () => { cursor.classList.add("off"); tip.hidden = true; };

    const reset = document.createElement("button");
    const draw = () => {
      stretched.setAttribute("viewBox", `${from * 10000} 0 ${(to - from) * 10000} 10000`);
      const put = (share) => (share - from) / (to - from);
      for (const band of plot.querySelectorAll(".band")) {
        const begin = Math.min(1, Math.max(0, put(+band.dataset.from))), end = Math.min(1, Math.max(0, put(+band.dataset.to)));
        band.setAttribute("x", `${begin * 100}%`);
        band.setAttribute("width", `${(end - begin) * 100}%`);
      }
      for (const rule of plot.querySelectorAll(".rule")) {
        const at = put(+rule.dataset.at);
        rule.classList.toggle("off", at < 0 || at > 1);
        rule.setAttribute("x1", `${at * 100}%`);
        rule.setAttribute("x2", `${at * 100}%`);
      }
      for (const dot of plot.querySelectorAll(":scope > svg:not(.stretched)")) {
        if (!dot.dataset.at) dot.dataset.at = parseFloat(dot.getAttribute("x")) / 100;
        const at = put(+dot.dataset.at);
        dot.classList.toggle("out", at < 0 || at > 1);
        dot.setAttribute("x", `${at * 100}%`);
        dot.setAttribute("visibility", at < 0 || at > 1 ? "hidden" : "visible");
      }
      const whole = from === 0 && to === 1;
      const ticks = plot.querySelector(".xs");
      if (!ticks.kept) ticks.kept = [...ticks.childNodes];
      if (whole) ticks.replaceChildren(...ticks.kept);
      else {
        ticks.replaceChildren();
        for (let place = 0; place <= 4; place += 1) {
          const at = place / 4;
          const text = make("text", { class: "tick", x: `${at * 100}%`, y: height + 17, "text-anchor": place === 0 ? "start" : place === 4 ? "end" : "middle" }, ticks);
          text.textContent = short(value(from + at * (to - from), xLow, xHigh, log.x));
        }
      }
      reset.hidden = whole;
    };

    let begun = null;
    plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      begun = share(event);
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      show(event);
      if (begun === null) return;
      const now = share(event);
      choice.classList.remove("off");
      choice.setAttribute("x", `${Math.min(begun, now) * 100}%`);
      choice.setAttribute("width", `${Math.abs(now - begun) * 100}%`);
    });
    plot.addEventListener("pointerup", (event) => {
      if (begun === null) return;
      const ends = [begun, share(event)].sort((a, b) => a - b);
      begun = null;
      choice.classList.add("off");
      if (ends[1] - ends[0] < 0.02) return;
      [from, to] = ends.map((each) => from + each * (to - from));
      draw();
    });
    plot.addEventListener("pointerleave", () => { if (begun === null) hide(); });

    const tools = document.createElement("div");
    tools.className = "tools";
    reset.type = "button";
    reset.textContent = "Whole width";
    reset.hidden = true;
    reset.addEventListener("click", () => { from = 0; to = 1; draw(); });
    tools.append(reset);
    figure.append(tools);

    const entries = [...figure.querySelectorAll(".legend li")].filter((each) => /^\d+$/.test(each.dataset.style));
    if (lines.length > 1) for (const entry of entries) {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.append(...entry.childNodes);
      entry.append(button);
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        for (const mark of plot.querySelectorAll(`[data-look="${entry.dataset.style}"]`)) mark.classList.toggle("off", !on);
      });
    }
  }
})();

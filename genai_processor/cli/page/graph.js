// SPDX-License-Identifier: Apache-2.0
// The drawing: what belongs to a node, moving along edges, zooming, dragging.
const makeGraph = (canvas, svg, {choose, hover}) => {
  const boxes = [];
  for (const box of svg.querySelectorAll(".node")) boxes[Number(box.dataset.node)] = box;
  const arrows = [...svg.querySelectorAll(".edge")].map((element) => {
    const label = element.nextElementSibling;
    return {
      element, from: Number(element.dataset.from), to: Number(element.dataset.to), kind: element.dataset.kind,
      label: label && label.classList.contains("kind") ? label : null,
    };
  });
  const into = boxes.map(() => []);
  const outOf = boxes.map(() => []);
  for (const arrow of arrows) {
    into[arrow.to].push(arrow);
    outOf[arrow.from].push(arrow);
  }
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const small = boxes.length <= 400;
  if (small) svg.classList.add("small");
  let scale = 1;
  let lit = [];
  let names = [];
  let current = 0;

  // The kind beside an edge, where there is none for good.
  const name = (arrow) => {
    const middle = arrow.element.getPointAtLength(arrow.element.getTotalLength() * 0.4);
    const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
    text.setAttribute("class", "kind on");
    text.setAttribute("x", String(middle.x));
    text.setAttribute("y", String(middle.y + 3));
    text.textContent = arrow.kind;
    arrow.element.parentNode.append(text);
    names.push(text);
  };

  const few = (node) => into[node].length + outOf[node].length <= 12;

  const light = (nodes, chosen) => {
    for (const element of lit) element.classList.remove("on", "chosen");
    for (const text of names) text.remove();
    lit = [];
    names = [];
    const set = new Set(nodes);
    for (const node of nodes) {
      for (const arrow of [...into[node], ...outOf[node]]) {
        if (!chosen && !(set.has(arrow.from) && set.has(arrow.to))) continue;
        lit.push(arrow.element);
        if (arrow.label) lit.push(arrow.label);
        else if (chosen && few(node)) name(arrow);
        if (chosen) lit.push(boxes[arrow.from], boxes[arrow.to]);
      }
      lit.push(boxes[node]);
    }
    for (const element of lit) element.classList.add("on");
    if (chosen) for (const node of nodes) boxes[node].classList.add("chosen");
    if (small) svg.classList.toggle("choosing", nodes.length > 0);
  };

  const settle = (node) => {
    if (boxes[current]) boxes[current].setAttribute("tabindex", "-1");
    current = node;
    boxes[node].setAttribute("tabindex", "0");
  };

  const show = (node) => {
    const box = boxes[node].getBoundingClientRect();
    const view = canvas.getBoundingClientRect();
    const seen = box.left >= view.left && box.right <= view.right && box.top >= view.top && box.bottom <= view.bottom;
    if (seen) return;
    canvas.scrollLeft += box.left - view.left - (view.width - box.width) / 2;
    canvas.scrollTop += box.top - view.top - (view.height - box.height) / 2;
  };

  const zoom = (factor) => {
    const before = scale;
    scale = Math.min(2, Math.max(0.05, factor));
    const x = (canvas.scrollLeft + canvas.clientWidth / 2) / before;
    const y = (canvas.scrollTop + canvas.clientHeight / 2) / before;
    svg.setAttribute("width", String(width * scale));
    svg.setAttribute("height", String(height * scale));
    canvas.scrollLeft = x * scale - canvas.clientWidth / 2;
    canvas.scrollTop = y * scale - canvas.clientHeight / 2;
  };

  const nodeOf = (event) => {
    const box = event.target.closest(".node");
    return box ? Number(box.dataset.node) : null;
  };

  svg.addEventListener("click", (event) => {
    const node = nodeOf(event);
    if (node !== null && !dragged) { settle(node); choose(node); }
  });
  svg.addEventListener("pointerover", (event) => hover(nodeOf(event)));
  svg.addEventListener("pointerleave", () => hover(null));
  svg.addEventListener("keydown", (event) => {
    const node = nodeOf(event);
    if (node === null || event.ctrlKey || event.metaKey || event.altKey) return;
    const go = (other) => {
      if (other === undefined || !boxes[other]) return;
      settle(other);
      boxes[other].focus({preventScroll: true});
      show(other);
    };
    const keys = {
      ArrowDown: () => go((outOf[node].find((arrow) => !arrow.kind.startsWith("return")) || {}).to),
      ArrowUp: () => go((into[node].find((arrow) => !arrow.kind.startsWith("return")) || {}).from),
      ArrowRight: () => go(node + 1),
      ArrowLeft: () => go(node - 1),
      Home: () => go(0),
      End: () => go(boxes.length - 1),
      Enter: () => choose(node),
      " ": () => choose(node),
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });

  let dragged = false;
  canvas.addEventListener("pointerdown", (down) => {
    dragged = false;
    if (down.button !== 0 || down.pointerType === "touch") return;
    const left = canvas.scrollLeft;
    const top = canvas.scrollTop;
    const move = (event) => {
      if (Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) > 4) dragged = true;
      if (!dragged) return;
      canvas.classList.add("dragged");
      canvas.scrollLeft = left + down.clientX - event.clientX;
      canvas.scrollTop = top + down.clientY - event.clientY;
    };
    const end = () => {
      canvas.classList.remove("dragged");
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
  });

  if (boxes.length) boxes[0].setAttribute("tabindex", "0");
  if (width > canvas.clientWidth) zoom(Math.max(0.85, canvas.clientWidth / width));
  canvas.scrollTo(0, 0);
  return {
    light, settle, show,
    near: (node) => [...into[node].map((arrow) => arrow.from), ...outOf[node].map((arrow) => arrow.to)],
    larger: () => zoom(scale * 1.25),
    smaller: () => zoom(scale / 1.25),
    fit: () => zoom(Math.min(1, (canvas.clientWidth - 2) / width, Math.max((canvas.clientHeight - 2) / height, 0.1))),
    filter(test) {
      boxes.forEach((box, node) => box.classList.toggle("off", test !== null && !test(node)));
      for (const {element, from, to} of arrows) element.classList.toggle("off", test !== null && !(test(from) && test(to)));
    },
  };
};

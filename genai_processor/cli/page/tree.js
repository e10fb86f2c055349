// SPDX-License-Identifier: Apache-2.0
// The rows of the tree: folding, moving with the keyboard, hiding what is not asked for.
const makeTree = (root, {choose, hover}) => {
  const rows = [...root.children];
  const depths = rows.map((row) => Number(row.dataset.depth));
  const place = new Map(rows.map((row, at) => [row, at]));
  const ofNode = new Map();
  rows.forEach((row, at) => { if (row.dataset.node !== undefined) ofNode.set(Number(row.dataset.node), at); });
  const folded = new Set();
  let wanted = null;
  let current = 0;

  const above = (at) => {
    let found = at - 1;
    while (found >= 0 && depths[found] >= depths[at]) found -= 1;
    return found;
  };

  const refresh = () => {
    const kept = wanted && new Uint8Array(rows.length);
    if (kept) {
      const path = [];
      rows.forEach((row, at) => {
        path.length = depths[at];
        path.push(at);
        if (wanted(at, row)) for (let up = path.length - 1; up >= 0 && !kept[path[up]]; up -= 1) kept[path[up]] = 1;
      });
    }
    let closed = Infinity;
    rows.forEach((row, at) => {
      if (depths[at] <= closed) closed = Infinity;
      const seen = closed === Infinity && (!kept || kept[at] === 1);
      if (row.hidden === seen) row.hidden = !seen;
      if (folded.has(at) && depths[at] < closed) closed = depths[at];
    });
    if (rows[current] && rows[current].hidden) {
      const first = rows.findIndex((row) => !row.hidden);
      if (first >= 0) settle(first);
    }
  };

  const settle = (at) => {
    if (rows[current]) rows[current].tabIndex = -1;
    current = at;
    rows[at].tabIndex = 0;
  };

  const go = (at) => {
    settle(at);
    rows[at].focus({preventScroll: true});
    rows[at].scrollIntoView({block: "nearest"});
  };

  const fold = (at, shut) => {
    if (!rows[at].hasAttribute("aria-expanded")) return;
    rows[at].setAttribute("aria-expanded", String(!shut));
    if (shut) folded.add(at); else folded.delete(at);
  };

  const next = (at, step) => {
    let found = at + step;
    while (found >= 0 && found < rows.length && rows[found].hidden) found += step;
    return found >= 0 && found < rows.length ? found : at;
  };

  root.addEventListener("click", (event) => {
    const row = event.target.closest("[role=treeitem]");
    if (!row) return;
    const at = place.get(row);
    if (event.target.classList.contains("twist") && row.hasAttribute("aria-expanded")) {
      fold(at, !folded.has(at));
      refresh();
      settle(at);
      return;
    }
    settle(at);
    choose(at);
  });
  root.addEventListener("pointerover", (event) => {
    const row = event.target.closest("[data-node]");
    hover(row ? Number(row.dataset.node) : null);
  });
  root.addEventListener("pointerleave", () => hover(null));
  root.addEventListener("keydown", (event) => {
    const row = event.target.closest("[role=treeitem]");
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = place.get(row);
    const opens = row.hasAttribute("aria-expanded");
    const keys = {
      ArrowDown: () => go(next(at, 1)),
      ArrowUp: () => go(next(at, -1)),
      Home: () => go(next(-1, 1)),
      End: () => go(next(rows.length, -1)),
      ArrowRight: () => {
        if (opens && folded.has(at)) { fold(at, false); refresh(); } else if (opens) go(next(at, 1));
      },
      ArrowLeft: () => {
        if (opens && !folded.has(at)) { fold(at, true); refresh(); } else if (above(at) >= 0) go(above(at));
      },
      Enter: () => choose(at),
      " ": () => choose(at),
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });

  if (rows.length) rows[0].tabIndex = 0;
  return {
    rows,
    nodeAt: (at) => (rows[at].dataset.node === undefined ? null : Number(rows[at].dataset.node)),
    rowOf: (node) => ofNode.get(node),
    select(at) {
      for (const row of root.querySelectorAll("[aria-selected=true]")) row.setAttribute("aria-selected", "false");
      if (at === null || at === undefined) return;
      for (let up = above(at); up >= 0; up = above(up)) if (folded.has(up)) fold(up, false);
      refresh();
      rows[at].setAttribute("aria-selected", "true");
      settle(at);
      rows[at].scrollIntoView({block: "nearest"});
    },
    near(nodes) {
      for (const row of root.querySelectorAll(".near")) row.classList.remove("near");
      for (const node of nodes) {
        const at = ofNode.get(node);
        if (at !== undefined) rows[at].classList.add("near");
      }
    },
    inside(at) {
      const found = [];
      for (let down = at + 1; down < rows.length && depths[down] > depths[at]; down += 1) {
        if (rows[down].dataset.node !== undefined) found.push(Number(rows[down].dataset.node));
      }
      return found;
    },
    filter(test) { wanted = test; refresh(); },
    foldAll(shut) {
      rows.forEach((row, at) => fold(at, shut));
      refresh();
    },
  };
};

// SPDX-License-Identifier: Apache-2.0
// Brings tree, graph and panel together.
const facts = JSON.parse(document.getElementById("facts").textContent);
const form = document.querySelector(".tools");
const svg = document.getElementById("graph");

const select = (node, row) => {
  tree.select(row);
  if (node !== null) {
    graph.light([node], true);
    graph.settle(node);
    graph.show(node);
    tree.near(graph.near(node));
    panel.node(node);
  } else {
    const inside = tree.inside(row);
    graph.light(inside, false);
    tree.near([]);
    if (inside.length) graph.show(inside[0]);
    panel.container(tree.rows[row].id);
  }
  chosen = {node, row};
  document.body.classList.add("chosen");
};
const clear = () => {
  chosen = null;
  document.body.classList.remove("chosen");
  tree.select(null);
  tree.near([]);
  graph.light([], false);
  panel.plan();
};
const chooseNode = (node) => select(node, tree.rowOf(node));
const hover = (node) => {
  if (chosen) return;
  graph.light(node === null ? [] : [node], node !== null);
  tree.near(node === null ? [] : [node, ...graph.near(node)]);
};

let chosen = null;
const tree = makeTree(document.querySelector("[role=tree]"), {
  choose: (row) => select(tree.nodeAt(row), row),
  hover,
});
const graph = makeGraph(document.querySelector(".canvas"), svg, {choose: chooseNode, hover});
const panel = makePanel(document.getElementById("about-plan"), document.getElementById("about-node"), facts, {
  go: ({node, row}) => (node !== undefined ? chooseNode(node) : select(null, tree.rows.findIndex((one) => one.id === row))),
  back: clear,
});

const texts = facts.nodes.map((node) => [
  node.operation, node.name, node.subject, node.agent_name, node.call_id, node.key, node.conversation, node.dialect,
  node.error_type, ...(node.spans || []), ...(node.reasons || []), node.unverified ? "unverified" : "", node.covered_by ? "covered" : "",
].join(" ").toLowerCase());
const apply = () => {
  const choices = new Set([...form.querySelectorAll("[name=choice]:checked")].map((box) => box.value));
  const find = form.elements.find.value.trim().toLowerCase();
  const every = choices.size === 3 && find === "";
  const fits = facts.nodes.map((node, at) => choices.has(node.choice) && texts[at].includes(find));
  const count = fits.reduce((total, fit) => total + Number(fit), 0);
  tree.filter(every ? null : (at, row) => {
    const node = tree.nodeAt(at);
    if (node !== null) return fits[node];
    const held = facts.containers[row.id];
    return find !== "" && `${held.name || ""} ${held.agent_name || ""}`.toLowerCase().includes(find);
  });
  graph.filter(every ? null : (node) => fits[node]);
  form.elements.found.value = every ? "" : `${count.toLocaleString("en")} of ${facts.nodes.length.toLocaleString("en")}`;
};

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", apply);
let soon = 0;
form.elements.find.addEventListener("input", () => {
  clearTimeout(soon);
  soon = setTimeout(apply, facts.nodes.length > 500 ? 120 : 0);
});
const actions = {
  fold: () => tree.foldAll(true), unfold: () => tree.foldAll(false),
  larger: graph.larger, smaller: graph.smaller, fit: graph.fit,
};
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.do) actions[button.dataset.do]();
  if (button.dataset.find) { form.elements.find.value = button.dataset.find; apply(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && chosen && event.target !== form.elements.find) clear();
});
form.querySelector("fieldset").disabled = false;
for (const button of document.querySelectorAll("button[disabled]")) button.disabled = false;

// SPDX-License-Identifier: Apache-2.0
// What is said of one node, or of one container. Recorded text gets in as text only.
const makePanel = (whole, place, facts, {go, back}) => {
  const {nodes, edges, words} = facts;
  const byKey = new Map(nodes.map((node, at) => [node.key, at]));
  const containers = new Map(Object.entries(facts.containers).map(([row, found]) => [found.key, {row, ...found}]));
  const into = nodes.map(() => []);
  const outOf = nodes.map(() => []);
  for (const [kind, from, to, slot, source, equal] of edges) {
    const edge = {kind, from, to, slot, source, equal};
    if (typeof to === "number") into[to].push(edge);
    if (typeof from === "number") outOf[from].push(edge);
  }

  const make = (tag, name, ...inner) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...inner.filter((part) => part !== null && part !== undefined && part !== ""));
    return element;
  };
  const number = (count) => count.toLocaleString("en");
  const bdi = (text) => make("bdi", "", text);
  const says = (choice) => make("span", `says ${choice}`, choice);
  const called = (node) => [node.name, node.subject, node.call_id].filter(Boolean).join(" ");

  const link = (end) => {
    const at = typeof end === "number" ? end : byKey.get(end);
    if (at !== undefined) {
      const button = make("button", "go", bdi(called(nodes[at])));
      button.type = "button";
      button.addEventListener("click", () => go({node: at}));
      return button;
    }
    const held = containers.get(end);
    if (held) {
      const button = make("button", "go", bdi(held.agent_name || held.name || "agent"));
      button.type = "button";
      button.addEventListener("click", () => go({row: held.row}));
      return button;
    }
    return make("span", "", "span ", make("span", "digest", String(end).split(":")[1] || end), ", not on this page");
  };

  const list = (rows) => {
    const found = make("dl", "");
    for (const [name, ...inner] of rows) {
      if (inner.some((part) => part !== null && part !== undefined && part !== "")) {
        found.append(make("dt", "", name), make("dd", "", ...inner));
      }
    }
    return found;
  };
  const joined = (parts) => parts.flatMap((part, at) => (at ? [", ", part] : [part]));

  const head = (title) => {
    const button = make("button", "back", "Back to the plan");
    button.type = "button";
    button.addEventListener("click", back);
    const heading = make("h2", "title", title);
    heading.tabIndex = -1;
    return [make("div", "head", heading, button)];
  };

  const decision = (node) => {
    const found = [make("p", "", says(node.choice))];
    const reasons = make("ul", "reasons");
    for (const reason of node.reasons || []) {
      reasons.append(make("li", "", make("span", "", reason), make("p", "", words.reasons[reason] || "")));
    }
    found.push(reasons);
    if (node.remedy) found.push(make("p", "remedy", `→ ${node.remedy}`));
    if (node.allows && node.choice !== "recompute") {
      found.push(make("p", "gloss", "Its place in the graph allows recomputing: only a declaration or a function is missing."));
    }
    if (node.covered_by) found.push(make("p", "flag", "Covered: the recorded outcome of ", link(node.covered_by), " stands for it."));
    if (node.unverified) {
      found.push(make("p", "flag", node.choice === "refuse"
        ? "It stands alone, or depends on one that does: nothing verifies it."
        : "Unverified: something that it depends on is refused, and nothing stands for that."));
    }
    return found;
  };

  const modes = (node) => {
    const found = list((node.modes || []).map((mode) => [mode, words.modes[mode]]));
    if (!node.modes) return [];
    const title = {inject: "Sound modes", recompute: "Modes, if it were injected", refuse: "Mode, if the unverified is allowed"};
    return [make("h3", "", title[node.choice]), found];
  };

  const slots = (node, at) => {
    const parts = node.slots || [];
    const found = [make("h3", "", "Input, in recorded order")];
    const states = (node.input || []).map((state) => words.states[state] || state).join(", ");
    found.push(list([
      ["order", words.orders[node.order]],
      ["recorded", states],
      ["slots", node.length ? number(node.length) : "none"],
      ["digest", node.input_digest ? make("span", "digest", node.input_digest) : null],
    ]));
    if (node.begins) {
      found.push(make("p", "gloss", `Slots 0 to ${number(node.begins - 1)} are the whole input and output of `, link(node.extends), "."));
    }
    if (parts.length) {
      const table = make("table", "slots", make("thead", "", make("tr", "", ...["slot", "part", "made by"].map((name) => {
        const cell = make("th", "", name);
        cell.scope = "col";
        return cell;
      }))));
      const body = make("tbody", "");
      for (const part of parts) {
        const made = into[at].filter((edge) => edge.slot === part.slot && edge.kind !== "return");
        const from = made.flatMap((edge, index) => [
          index ? " or " : "", link(edge.from), ` (${edge.kind}${edge.equal ? "" : ", changed on the way"})`,
        ]);
        const source = made.length ? from
          : [part.role === "system" || part.role === "user" || node.order === "no_list" ? "constant" : "no recorded node"];
        body.append(make("tr", "", make("td", "", number(part.slot)), piece(part), make("td", "", ...source)));
        if (part.value !== undefined) {
          const cell = make("td", "", make("pre", "value", part.value));
          cell.colSpan = 2;
          body.append(make("tr", "of-value", make("td", ""), cell));
        }
      }
      table.append(body);
      found.push(table);
      const more = node.length - (node.begins || 0) - parts.length;
      if (more > 0) found.push(make("p", "gloss", `${number(more)} more slots: --format json has their edges.`));
    }
    const loose = into[at].filter((edge) => edge.slot < 0 || edge.kind === "return" || edge.slot < (node.begins || 0)
      || !parts.some((part) => part.slot === edge.slot));
    if (loose.length) {
      found.push(make("h3", "", "More edges into it"), edgeList(loose.slice(0, 40), "from", loose.length));
    }
    return found;
  };

  const piece = (part) => {
    const cell = make("td", "", `${part.role} ${part.kind}`, part.tool ? " " : "", part.tool ? bdi(part.tool) : "",
      part.missing ? ", not recorded" : "", make("br", ""), make("span", "digest", part.digest));
    return cell;
  };

  const edgeList = (found, end, total) => {
    const items = make("ul", "problems");
    for (const edge of found) {
      const to = nodes[edge.to];
      const slot = edge.slot >= 0 && !(to && to.order === "no_list") ? `, slot ${number(edge.slot)}` : "";
      items.append(make("li", "", `${edge.kind} `, link(edge[end]), slot, edge.equal ? "" : ", changed on the way"));
    }
    if (total > found.length) items.append(make("li", "", `${number(total - found.length)} more`));
    return items;
  };

  const outcome = (node, at) => {
    const found = [make("h3", "", "Outcome"), list([
      ["ending", words.endings[node.ending]],
      ["error", node.error_type ? bdi(node.error_type) : null],
      ["recorded", words.states[node.output] || node.output],
      ["digest", node.output_digest ? make("span", "digest", node.output_digest) : null],
    ])];
    if (node.error_message) found.push(make("pre", "value", node.error_message));
    const valued = (node.outputs || []).filter((part) => part.value !== undefined);
    for (const part of valued) found.push(make("p", "gloss", `${part.slot}: ${part.kind} `, bdi(part.tool || "")), make("pre", "value", part.value));
    const out = outOf[at];
    found.push(make("h3", "", "Read by"));
    found.push(out.length ? edgeList(out.slice(0, 40), "to", out.length) : make("p", "gloss", "no recorded node"));
    const left = facts.left[at];
    if (left) found.push(make("p", "gloss", `${number(left)} more of its edges are not on this page.`));
    return found;
  };

  const about = (node) => {
    const spans = node.spans.map((span) => make("span", "digest", span));
    if (node.more_spans) spans.push(`${number(node.more_spans)} more`);
    return [make("h3", "", "Where it is recorded"), list([
      ["operation", node.operation + (node.composite ? ", with an agent inside" : "")],
      ["in", node.agent ? link(node.agent) : null],
      ["agent", node.agent_name ? bdi(node.agent_name) : null],
      ["call id", node.call_id ? make("bdi", "digest", node.call_id) : null],
      ["trace", make("span", "digest", node.key.split(":")[0])],
      [spans.length > 1 ? "spans" : "span", ...joined(spans)],
      ["conversation", node.conversation ? bdi(node.conversation) : null],
      ["recorded by", node.dialect ? bdi(node.dialect) : null],
      ["attempts", ...joined((node.attempts || []).map(link))],
    ])];
  };

  const problems = (node) => {
    const keys = new Set(node.spans.map((span) => `${node.key.split(":")[0]}:${span}`));
    const mine = facts.problems.filter(([where]) => keys.has(where));
    if (!mine.length) return [];
    return [make("h3", "", "Problems"), make("ul", "problems", ...mine.map(([, problem]) => make("li", "", bdi(problem))))];
  };

  const fill = (...inner) => {
    place.replaceChildren(...inner);
    whole.hidden = true;
    place.hidden = false;
    place.parentElement.scrollTop = 0;
  };

  return {
    node(at) {
      const node = nodes[at];
      const title = [make("span", "operation", node.name || ""), " ", make("bdi", "subject", node.subject || "")];
      fill(...head(make("span", "", ...title)), ...decision(node), ...modes(node), ...problems(node), ...slots(node, at),
        ...outcome(node, at), ...about(node));
    },
    container(row) {
      const held = facts.containers[row];
      const inside = held.inside || {};
      const counts = Object.entries(inside).map(([choice, count]) => make("span", "", `${number(count)} `, says(choice)));
      fill(...head(bdi(held.agent_name || held.name || "agent")),
        make("p", "gloss", "A container: it has no decision of its own, and reports the worst inside."),
        held.injected ? make("p", "flag", "Boundary. It is injected: its recorded outcome stands for everything inside.") : "",
        list([
          ["worst inside", held.worst ? says(held.worst) : "nothing inside"],
          ["inside", ...joined(counts)],
          ["span name", bdi(held.name || "")],
          ["agent", held.agent_name ? bdi(held.agent_name) : null],
          ["in", held.parent ? link(held.parent) : null],
          ["span", make("span", "digest", held.key.split(":")[1])],
          ["trace", make("span", "digest", held.key.split(":")[0])],
          ["input digest", held.input_digest ? make("span", "digest", held.input_digest) : null],
          ["output digest", held.output_digest ? make("span", "digest", held.output_digest) : null],
        ]));
    },
    plan() {
      whole.hidden = false;
      place.hidden = true;
      place.replaceChildren();
    },
  };
};

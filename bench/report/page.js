
"use strict";
// Everything that comes from records is put into the page as text, never as HTML.
const records = JSON.parse(document.getElementById("records").textContent);
const byId = (id) => document.getElementById(id);
const form = byId("filters");
let current = null; // the question that is shown, by its place in the set

function make(tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}

function options(select, names) {
  select.replaceChildren(...names.map((name, at) => {
    const option = make("option", name);
    option.value = String(at);
    return option;
  }));
}

const set = () => records.sets[Number(byId("data").value)];
const metric = () => set().metrics[Number(byId("metric").value)];
const chosen = () => set().methods.filter((method, at) => byId("method-" + at).checked);
const percent = (share) => (100 * share).toFixed(0);
const label = (name) => ({ f1: "F1", rouge_l: "ROUGE-L", exact_match: "EM" }[name] || name);

function score(answer, name = metric()) {
  return answer && answer.scores ? answer.scores[name] : undefined;
}

function scoresOf(answers, name = metric()) {
  return answers.map((answer) => score(answer, name)).filter((value) => value !== undefined);
}

const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / values.length; // NaN for none

function threeDigits(value) {
  if (!value) return "0";
  return value >= 1000 || value < 1e-6 ? value.toExponential(2) : String(Number(value.toPrecision(3)));
}

function changeData() {
  const data = set();
  const before = byId("metric").selectedIndex >= 0 ? byId("metric").selectedOptions[0].textContent : "F1";
  options(byId("metric"), data.metrics.map(label));
  byId("metric").value = String(Math.max(0, data.metrics.map(label).indexOf(before)));
  byId("methods").replaceChildren(...data.methods.map((method, at) => {
    const line = make("label", undefined, "check");
    const box = make("input");
    box.type = "checkbox";
    box.id = "method-" + at;
    box.checked = box.defaultChecked = Boolean(method.chosen);
    line.append(box, make("span", method.name));
    line.title = method.options + "; " + method.model;
    return line;
  }));
  current = null;
  refresh();
}

function wanted(at, methods) {
  const question = set().questions[at];
  const answers = methods.map((method) => method.answers[at]).filter(Boolean);
  const words = byId("text").value.trim().toLowerCase();
  if (words) {
    const predictions = answers.map((answer) => answer.prediction || "");
    const all = [question.id, question.question, ...question.references, ...predictions].join("\n").toLowerCase();
    if (!all.includes(words)) return false;
  }
  if (byId("common").checked && answers.length < methods.length) return false;
  if (byId("failed").checked && !answers.some((answer) => answer.error)) return false;
  if (byId("flagged").checked && !answers.some((answer) => answer.flags)) return false;
  const scores = scoresOf(answers);
  if (byId("differ").checked && new Set(scores).size < 2) return false;
  const low = byId("low").value, high = byId("high").value;
  if (low === "" && high === "") return true;
  const from = low === "" ? 0 : Number(low), to = high === "" ? 100 : Number(high);
  return scores.some((value) => Math.round(100 * value) >= from && Math.round(100 * value) <= to);
}

function ordered(places, methods) {
  const order = byId("order").value;
  if (order === "data") return places;
  const key = (at) => {
    const scores = scoresOf(methods.map((method) => method.answers[at]));
    if (!scores.length) return 2;
    if (order === "low") return meanOf(scores);
    return Math.min(...scores) - Math.max(...scores);
  };
  return places.map((at) => [key(at), at]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((pair) => pair[1]);
}

function headings(methods, shown, name = metric()) {
  const row = make("tr");
  const first = make("th", "Question");
  first.scope = "col";
  row.append(first);
  for (const method of methods) {
    const heading = make("th");
    heading.append(make("span", method.name));
    heading.title = method.name;
    heading.scope = "col";
    const scores = scoresOf(shown.map((at) => method.answers[at]), name);
    heading.append(make("span", scores.length ? "mean " + (100 * meanOf(scores)).toFixed(1) + " %" : "", "mean"));
    row.append(heading);
  }
  return row;
}

function scoreCell(answer, name = metric()) {
  if (!answer) return make("td", "–");
  if (answer.error) return make("td", "failed", "failed");
  const value = score(answer, name);
  const cell = make("td", value === undefined ? "–" : percent(value));
  if (value !== undefined) cell.style.setProperty("--share", String(value));
  if (answer.flags) {
    const flag = make("span", " ⚑");
    flag.title = answer.flags.join(", ");
    flag.setAttribute("role", "img");
    flag.setAttribute("aria-label", "flagged: " + flag.title);
    cell.append(flag);
  }
  return cell;
}

function questionCell(data, at) {
  const first = make("th"), button = make("button", data.questions[at].question || "(empty)");
  first.scope = "row";
  button.type = "button";
  button.dataset.at = String(at);
  first.append(button);
  return first;
}

function refresh() {
  const methods = chosen();
  const all = set().questions.map((_, at) => at);
  const shown = ordered(all.filter((at) => wanted(at, methods)), methods);
  const table = make("table"), head = make("thead"), body = make("tbody");
  head.append(headings(methods, shown));
  for (const at of shown) {
    const row = make("tr");
    row.append(questionCell(set(), at), ...methods.map((method) => scoreCell(method.answers[at])));
    body.append(row);
  }
  table.append(head, body);
  byId("list").replaceChildren(table);
  byId("count").textContent = shown.length + " of " + all.length + " questions" +
    (methods.length ? "" : "; choose a method to see answers");
  if (current === null || !shown.includes(current)) current = shown.length ? shown[0] : null;
  show();
}

const listed = () => Array.from(byId("list").querySelectorAll("button"));
const places = () => listed().map((button) => Number(button.dataset.at));

function show() {
  for (const button of listed()) {
    button.closest("tr").setAttribute("aria-current", String(Number(button.dataset.at) === current));
  }
  const detail = byId("question"), at = places().indexOf(current);
  byId("previous").disabled = at <= 0;
  byId("next").disabled = at < 0 || at + 1 >= places().length;
  if (current === null) {
    const none = byId("common").checked && chosen().length > 1 ? " Fewer methods, or without ‘asked in all chosen’, may show some." : "";
    detail.replaceChildren(make("p", "No question fits the filters." + none, "missing"));
    return;
  }
  detail.replaceChildren(...sideBySide(set().questions[current], chosen(), current, metric(), "questions"));
}

// part: of the page, so that each region on it has a name of its own.
function sideBySide(question, methods, at, name, part) {
  const about = make("dl");
  about.append(make("dt", question.references.length > 1 ? "References" : "Reference"));
  about.append(make("dd", question.references.join(" | ") || "none"));
  about.append(make("dt", "Id"), make("dd", question.id));
  const answers = make("div", undefined, "answers");
  for (const method of methods) answers.append(answerCard(method, method.answers[at], question, name, part));
  return [make("h3", question.question || "(empty question)"), about, answers];
}

function answerCard(method, answer, question, name, part) {
  const card = make("article", undefined, "answer"), head = make("h4");
  head.append(make("span", method.name));
  card.append(head);
  if (!answer) {
    card.append(make("p", "This run did not ask the question.", "facts"));
    return card;
  }
  const value = score(answer, name);
  head.append(make("span", value === undefined ? "" : label(name) + " " + percent(value) + " %"));
  if (answer.error) card.append(make("p", "Failed: " + answer.error, "prediction failed"));
  else if (!answer.prediction) card.append(make("p", "(an empty answer)", "prediction empty"));
  else card.append(make("p", answer.prediction, "prediction"));
  if (answer.flags) {
    const flags = make("p", undefined, "flags");
    flags.append(...answer.flags.map((flag) => make("span", flag)));
    card.append(flags);
  }
  const scores = { ...answer.scores, ...answer.retrieval };
  const measured = Object.entries(scores).map(([name, share]) => label(name).replaceAll("_", " ") + " " + percent(share) + " %");
  card.append(make("p", measured.join(" · "), "facts"));
  const [query, index] = answer.flops.map((count) => threeDigits(count / 1e12));
  const [prompt, completion, forwarded] = answer.tokens;
  card.append(make("p", `${query} TFLOPs for the question, ${index} for the index · ${prompt} prompt tokens, ` +
    `${completion} answered, ${forwarded} forwarded`, "facts"));
  card.append(make("p", method.options + " · " + method.model, "facts"));
  if (answer.path) card.append(reading("Search path", pathItems(answer, question), `${method.name}, ${part}`));
  else if (answer.context) card.append(reading("Context", answer.context.map((item, at) => passage(item, at + 1, question)), `${method.name}, ${part}`));
  else card.append(make("p", "Nothing was read.", "facts"));
  if (answer.log) {
    const log = make("details");
    const text = make("pre", answer.log);
    text.tabIndex = 0;
    log.append(make("summary", "The method's log"), text);
    card.append(log);
  }
  if (answer.more) card.append(make("p", answer.more + " more passages were read; see the records.", "facts"));
  return card;
}

const closed = new Set(); // kinds of reading that the user has closed
function reading(kind, items, of) {
  const details = make("details");
  details.open = !closed.has(kind);
  details.addEventListener("toggle", () => { if (details.open) closed.delete(kind); else closed.add(kind); });
  const box = make("div", undefined, "read");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", kind + ", " + of);
  box.append(...items);
  const count = items.filter((item) => item.classList.contains("item")).length;
  details.append(make("summary", `${kind}: ${count} read, in this order`), box);
  return details;
}

function passage([title, place, rank, text], number, question, more) {
  const item = make("div", undefined, "item"), head = make("p", undefined, "facts");
  head.append(make("b", number + ". " + (title || place)));
  const details = [title ? place : "", ...(more || []), rank === null ? "" : "score " + threeDigitsSigned(rank)];
  head.append(" " + details.filter(Boolean).join(" · "));
  item.append(head);
  if (text === null) item.append(make("p", "(its text is not in this page)", "facts"));
  else item.append(marked(records.texts[text], question));
  return item;
}

function threeDigitsSigned(value) {
  return value < 0 ? "-" + threeDigits(-value) : threeDigits(value);
}

function marked(text, question) {
  const line = make("p");
  const plain = text.toLowerCase();
  const words = question.references.map((answer) => answer.trim().toLowerCase())
    .filter((answer) => answer.length > 2 && answer !== "yes" && plain.length === text.length);
  let at = 0;
  while (at < text.length) {
    let next = -1, length = 0;
    for (const word of words) {
      const start = plain.indexOf(word, at);
      if (start >= 0 && (next < 0 || start < next || (start === next && word.length > length))) {
        next = start;
        length = word.length;
      }
    }
    if (next < 0) break;
    line.append(text.slice(at, next), make("mark", text.slice(next, next + length)));
    at = next + length;
  }
  line.append(text.slice(at));
  return line;
}

function pathItems(answer, question) {
  const path = answer.path, items = [];
  let at = 0;
  path.steps.forEach((step, number) => {
    for (const node of step.nodes) {
      const item = answer.context && answer.context[at];
      at += 1;
      const more = ["node " + node.id, node.level === undefined ? "" : "level " + node.level, "step " + number];
      if (item) items.push(passage([item[0], item[0] ? item[1] : more.shift(), item[2], item[3]], at, question, more));
    }
    if (step.p_yes === undefined) return;
    const decision = make("div", undefined, "decision"), bar = make("meter");
    bar.min = 0;
    bar.max = 1;
    bar.value = step.p_yes;
    bar.setAttribute("aria-label", "p_yes");
    const yes = path.base !== undefined ? "" : step.p_yes > path.t_c ? ": Yes" : ": read on";
    decision.append("Step " + number + ", knows enough?", bar, "p_yes " + step.p_yes.toFixed(3) + yes);
    items.push(decision);
  });
  const rule = Object.keys(path).filter((key) => key !== "steps" && key !== "stop").map((key) => key + " " + path[key]);
  items.push(make("p", "Stopped by " + (path.stop || "the end") + (rule.length ? " (" + rule.join(", ") + ")." : "."), "facts"));
  return items;
}

// A list of questions: a click chooses one, the up and down keys move between them.
function walkable(list, detail, choose) {
  list.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    choose(Number(button.dataset.at));
    if (matchMedia("(max-width: 900px)").matches) detail.scrollIntoView();
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const button = event.target.closest("button");
    if (!step || !button) return;
    event.preventDefault();
    const buttons = Array.from(list.querySelectorAll("button"));
    const next = buttons[buttons.indexOf(button) + step] || button;
    choose(Number(next.dataset.at));
    next.focus();
  });
}

function choose(at) {
  current = at;
  show();
}

function go(step) {
  const next = places()[places().indexOf(current) + step];
  if (next !== undefined) choose(next);
}

walkable(byId("list"), byId("detail"), choose);
byId("previous").addEventListener("click", () => go(-1));
byId("next").addEventListener("click", () => go(1));
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  if (event.target === byId("data")) changeData();
  else refresh();
});
form.addEventListener("reset", (event) => {
  event.preventDefault();
  for (const id of ["text", "low", "high"]) byId(id).value = "";
  for (const id of ["common", "failed", "flagged", "differ"]) byId(id).checked = false;
  byId("order").value = "data";
  refresh();
});

// What was run: its rows can be filtered by words and sorted by any column.
const runs = byId("runs"), lines = Array.from(runs.tBodies[0].rows);
function filterRuns() {
  const words = byId("only").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const line of lines) {
    const text = line.textContent.toLowerCase();
    line.hidden = !words.every((word) => text.includes(word));
  }
  byId("shown").textContent = lines.filter((line) => !line.hidden).length + " of " + lines.length + " cells";
}

function sortRuns(heading, column) {
  const value = (line) => line.cells[column].dataset.number;
  const numeric = value(lines[0]) !== undefined;
  const before = heading.getAttribute("aria-sort");
  const down = before ? before === "ascending" : numeric;
  for (const other of runs.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const order = (a, b) => numeric ? value(a) - value(b)
    : a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, { numeric: true });
  runs.tBodies[0].append(...lines.slice().sort((a, b) => (down ? -1 : 1) * order(a, b)));
}

Array.from(runs.tHead.rows[0].cells).forEach((heading, column) => {
  const button = make("button", heading.textContent);
  button.type = "button";
  button.addEventListener("click", () => sortRuns(heading, column));
  heading.replaceChildren(button);
});
byId("only").addEventListener("input", filterRuns);
filterRuns();

// Compare two: what both were asked, by the difference of their scores.
const pairSet = () => records.sets[Number(byId("pair-data").value)];
const pairMetric = () => pairSet().metrics[Number(byId("pair-metric").value)];
const pairMethods = () => ["first", "second"].map((id) => pairSet().methods[Number(byId(id).value)]);
let pairAt = null; // the question whose answers are shown

function changePairData() {
  const data = pairSet();
  options(byId("pair-metric"), data.metrics.map(label));
  byId("pair-metric").value = String(Math.max(0, data.metrics.indexOf("f1")));
  for (const id of ["first", "second"]) options(byId(id), data.methods.map((method) => method.name));
  const means = data.methods.map((method) => meanOf(scoresOf(method.answers, pairMetric())) || 0);
  const best = means.indexOf(Math.max(...means));
  byId("first").value = String(best);
  byId("second").value = String(data.methods.length > 1 && best === 0 ? 1 : 0);
  pairAt = null;
  refreshPair();
}

function differences() {
  const [first, second] = pairMethods(), pairs = [];
  pairSet().questions.forEach((_, at) => {
    const scores = [first, second].map((method) => score(method.answers[at], pairMetric()));
    if (!scores.includes(undefined)) pairs.push({ at, scores, difference: scores[0] - scores[1] });
  });
  const size = { size: (one) => Math.abs(one.difference), first: (one) => one.difference, second: (one) => -one.difference };
  const key = size[byId("pair-order").value];
  return pairs.sort((a, b) => key(b) - key(a) || a.at - b.at);
}

function differenceCell(difference) {
  const cell = make("td", (difference > 0 ? "+" : difference < 0 ? "−" : "") + percent(Math.abs(difference)));
  if (difference) cell.className = difference > 0 ? "better" : "worse";
  cell.style.setProperty("--share", String(Math.abs(difference)));
  return cell;
}

function refreshPair() {
  const methods = pairMethods(), pairs = differences();
  const table = make("table"), head = make("thead"), body = make("tbody");
  const row = headings(methods, pairs.map((one) => one.at), pairMetric()), last = make("th", "Difference");
  last.scope = "col";
  row.firstChild.after(last);
  head.append(row);
  for (const one of pairs) {
    const line = make("tr");
    const scores = methods.map((method) => scoreCell(method.answers[one.at], pairMetric()));
    line.append(questionCell(pairSet(), one.at), differenceCell(one.difference), ...scores);
    body.append(line);
  }
  table.append(head, body);
  byId("pair-list").replaceChildren(table);
  byId("pair-says").textContent = pairSays(methods, pairs);
  if (!pairs.some((one) => one.at === pairAt)) pairAt = pairs.length ? pairs[0].at : null;
  showPair();
}

function pairSays(methods, pairs) {
  if (methods[0] === methods[1]) return "Choose two different cells.";
  if (!pairs.length) return "No question with a reference was asked in both.";
  const [first, second] = methods.map((method, at) => {
    const cost = meanOf(pairs.map((one) => method.answers[one.at].flops[0] / 1e12));
    const mean = meanOf(pairs.map((one) => one.scores[at]));
    return `${method.name} ${(100 * mean).toFixed(1)} % with ${threeDigits(cost)} TFLOPs per question`;
  });
  const better = pairs.filter((one) => one.difference > 0).length, worse = pairs.filter((one) => one.difference < 0).length;
  return `${label(pairMetric())} on ${pairs.length} question${pairs.length === 1 ? "" : "s"}: ${first}; ${second}. The first is better on ${better}, ` +
    `the second on ${worse}, they are equal on ${pairs.length - better - worse}.`;
}

function showPair() {
  for (const button of byId("pair-list").querySelectorAll("button")) {
    button.closest("tr").setAttribute("aria-current", String(Number(button.dataset.at) === pairAt));
  }
  if (pairAt === null) byId("pair-detail").replaceChildren();
  else byId("pair-detail").replaceChildren(...sideBySide(pairSet().questions[pairAt], pairMethods(), pairAt, pairMetric(), "compare two"));
}

walkable(byId("pair-list"), byId("pair-detail"), (at) => {
  pairAt = at;
  showPair();
});
byId("pair").addEventListener("submit", (event) => event.preventDefault());
byId("pair").addEventListener("input", (event) => {
  if (event.target === byId("pair-data")) changePairData();
  else refreshPair();
});

for (const id of ["data", "pair-data"]) options(byId(id), records.sets.map((data) => data.label));
changeData();
changePairData();
byId("compare").hidden = !records.sets.some((data) => data.methods.length > 1);

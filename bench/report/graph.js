"use strict";
const nodes = JSON.parse(document.getElementById("nodes").textContent);
const panel = document.getElementById("panel");
const edges = Array.from(document.querySelectorAll(".edge"));
const boxes = Array.from(document.querySelectorAll(".node"));
let pinned = null;
function show(box) {
  const at = box.dataset.n, node = nodes[Number(at)];
  const head = document.createElement("h2");
  const note = document.createElement("i");
  const text = document.createElement("p");
  head.textContent = "Node " + node.id;
  note.textContent = node.note;
  text.textContent = node.text;
  panel.replaceChildren(head, note, text);
  for (const other of boxes) other.classList.toggle("here", other === box);
  for (const edge of edges) {
    const near = edge.dataset.a === at || edge.dataset.b === at;
    edge.classList.toggle("near", near);
    edge.classList.toggle("far", !near);
  }
}
function clear() {
  for (const box of boxes) box.classList.remove("here");
  for (const edge of edges) edge.classList.remove("near", "far");
}
for (const box of boxes) {
  box.addEventListener("mouseenter", () => { if (!pinned) show(box); });
  box.addEventListener("mouseleave", () => { if (!pinned) clear(); });
  box.addEventListener("focus", () => { if (!pinned) show(box); });
  box.addEventListener("click", () => {
    pinned = pinned === box ? null : box;
    if (pinned) show(box); else clear();
  });
}

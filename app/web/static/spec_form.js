// The form of a job spec: a problem's line number leads to that line of the text.
"use strict";

(() => {
  const text = document.getElementById("spec");

  const show = (line) => {
    const lines = text.value.split("\n");
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    text.focus({ preventScroll: true });
    text.setSelectionRange(start, start + (lines[line - 1] || "").length);
    text.scrollIntoView({ block: "nearest" });
    const height = parseFloat(getComputedStyle(text).lineHeight);
    text.scrollTop = Math.max(0, (line - 4) * height);
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-line]");
    if (!link) return;
    event.preventDefault();
    show(Number(link.dataset.line));
  });
})();

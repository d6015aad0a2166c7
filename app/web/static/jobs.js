// What the list of jobs needs beyond the other pages: ticks, the question before a command, copying.
"use strict";

(() => {
  const ticks = () => [...document.querySelectorAll("#jobs td.tick input")];
  const form = document.getElementById("selection");
  const dialog = document.getElementById("confirm");

  // Says how many are chosen, and keeps the box of the whole page in step with the boxes below it.
  const count = () => {
    const boxes = ticks();
    const chosen = boxes.filter((box) => box.checked);
    const jobs = chosen.reduce((sum, box) => sum + Number(box.dataset.jobs || 1), 0);
    const whole = document.querySelector(".tick-page");
    if (whole) {
      whole.checked = boxes.length > 0 && chosen.length === boxes.length;
      whole.indeterminate = chosen.length > 0 && !whole.checked;
    }
    const all = form.elements.namedItem("everything").checked;
    const total = document.getElementById("jobs").dataset.jobs;
    document.getElementById("match-count").textContent = total;
    document.getElementById("chosen-count").textContent =
      all ? `${total} selected` : `${jobs.toLocaleString("en-US")} selected`;
  };

  // Each arrow key on a closed list chooses the next entry: the button submits, when one is meant.
  const closed = CSS.supports("selector(:open)") ? "[data-submits]:not(:open)" : "[data-submits]";
  let stepsByKey = false;
  document.addEventListener("keydown", (event) => { stepsByKey = event.target.matches(closed); });
  document.addEventListener("pointerdown", () => { stepsByKey = false; });

  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.matches("[data-submits]") && !stepsByKey) box.form.requestSubmit();
    if (box.matches(".tick-page")) ticks().forEach((one) => { one.checked = box.checked; });
    // Whoever unticks one job does not mean all of them.
    if (box.matches("td.tick input") && !box.checked) {
      form.elements.namedItem("everything").checked = false;
    }
    if (box.type === "checkbox") count();
  });

  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target !== dialog || !event.detail.isError) return;
    event.detail.shouldSwap = true;
    event.detail.selectOverride = "main";
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target === dialog && !dialog.open) dialog.showModal();
  });

  document.addEventListener("htmx:afterSettle", count);

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-closes]") && dialog.open) {
      event.preventDefault();
      dialog.close();
    }
    const copies = event.target.closest(".copy");
    if (!copies) return;
    navigator.clipboard.writeText(copies.previousElementSibling.textContent).then(() => {
      copies.textContent = "Copied";
    });
  });

  // Browsers let only pages of this machine, or by https, write to the clipboard.
  const offerCopies = () => {
    if (!navigator.clipboard) return;
    document.querySelectorAll(".copy").forEach((button) => { button.hidden = false; });
  };
  document.addEventListener("htmx:afterSettle", offerCopies);
  document.documentElement.classList.add("scripted");
  offerCopies();
  count();
})();

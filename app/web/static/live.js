// What the pages need beyond htmx: rest while hidden, say when the server is silent, copy
// commands, follow logs.
"use strict";

(() => {
  let answeredAt = new Date();

  const offline = (silent) => {
    const note = document.getElementById("offline");
    if (!note || note.hidden === !silent) return;
    document.getElementById("offline-since").textContent = answeredAt.toISOString().slice(11, 19);
    note.hidden = !silent;
  };

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden && event.detail.requestConfig.triggeringEvent === undefined) {
      event.preventDefault();
    }
  });

  document.addEventListener("htmx:afterRequest", (event) => {
    const status = event.detail.xhr.status;
    if (status >= 200 && status < 500) answeredAt = new Date();
    offline(status === 0 || status >= 500);
  });

  // What a person has opened or ticked stays so when the page looks again.
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
    !(name === "open" && node.tagName === "DETAILS") && name !== "checked";

  // A command is copied by its button; browsers allow that on https and on this machine alone.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = document.getElementById(button.dataset.copy);
    if (navigator.clipboard) {
      navigator.clipboard.writeText(source.textContent).then(() => {
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      }, () => getSelection().selectAllChildren(source));
    } else {
      getSelection().selectAllChildren(source);
    }
  });

  // A log that was read to its end stays at its end.
  let following = true;
  document.addEventListener("htmx:beforeSwap", () => {
    const log = document.getElementById("log-text");
    following = !log || log.scrollHeight - log.scrollTop - log.clientHeight < 24;
  });
  document.addEventListener("htmx:afterSettle", () => {
    const log = document.getElementById("log-text");
    if (log && following) log.scrollTop = log.scrollHeight;
  });
})();

// The form of an invitation: its token comes from behind the # of the address, which goes nowhere.
"use strict";

(() => {
  const take = () => {
    const token = location.hash.slice(1);
    if (!token) return;
    document.getElementById("token").value = token;
    // The token stays neither in the address nor in the history.
    history.replaceState(null, "", location.pathname);
  };
  take();
  addEventListener("hashchange", take);
})();

"use strict";
// Plans anew while a slider is moved. Without this file the button of the form does it.
(() => {
  const form = document.querySelector("form[data-live]");
  const answer = document.getElementById("answer");
  if (!form || !answer) return;
  const patienceMs = 150;
  let timer = 0;
  let running = new AbortController();

  async function ask() {
    running.abort();
    running = new AbortController();
    const address = new URL(location.href);
    address.search = new URLSearchParams(new FormData(form)).toString();
    answer.setAttribute("aria-busy", "true");
    try {
      const reply = await fetch(address, { signal: running.signal });
      const page = new DOMParser().parseFromString(await reply.text(), "text/html");
      const fresh = page.getElementById("answer") || page.querySelector("main");
      answer.replaceChildren(...fresh.childNodes);
      history.replaceState(null, "", address);
    } catch (error) {
      if (error.name === "AbortError") return;
      answer.textContent = "The server does not answer. Is it still running?";
    }
    answer.removeAttribute("aria-busy");
  }

  form.addEventListener("input", (event) => {
    const shown = document.getElementById(`${event.target.id}-shown`);
    if (shown) shown.textContent = event.target.value + shown.dataset.unit;
    clearTimeout(timer);
    timer = setTimeout(ask, patienceMs);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    ask();
  });
})();

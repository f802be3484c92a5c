// What a page can do more with a script: keep itself up to date, search as you type, copy commands, and keys.
// It is complete without.
"use strict";
(() => {
  const main = document.querySelector("main");
  const busy = () => main.contains(document.activeElement) && document.activeElement !== main
    && !document.activeElement.matches("a, [data-find]");

  async function fetched(address, signal) {
    const answer = await fetch(address, { credentials: "same-origin", signal });
    if (answer.status === 401) location.reload();
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  }

  function addCopyButtons() {
    if (!navigator.clipboard) return; // only where the connection is trusted: this machine, or TLS
    for (const code of main.querySelectorAll("code.command:not(.with-copy)")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "copy";
      button.setAttribute("aria-label", "Copy: " + code.textContent);
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
      });
      code.classList.add("with-copy");
      code.after(button);
    }
  }

  // ── up to date: the server says when something was written ──

  const live = document.createElement("label");
  const box = document.createElement("input");
  const said = document.createElement("span");
  box.type = "checkbox";
  box.setAttribute("aria-label", "Keep this page up to date");
  box.checked = localStorage.getItem("live") !== "no";
  said.setAttribute("role", "status");
  said.textContent = "Live";
  live.className = "live";
  live.append(box, said);
  document.querySelector(".leave").before(live);

  let due = false;
  async function refresh() {
    if (!box.checked || document.hidden || String(getSelection()) || busy()) { due = true; return; }
    due = false;
    try {
      const fresh = (await fetched(location.href)).querySelector("main");
      const open = [...main.querySelectorAll("details")].map((one) => one.open);
      const kept = document.activeElement.matches("[data-find]") ? document.activeElement : null;
      if (kept && main.contains(kept)) return; // a query is being typed
      const notice = main.querySelector(".said");
      main.replaceChildren(...fresh.childNodes);
      if (notice && !main.querySelector(".said")) main.prepend(notice); // it is said once, and should be read
      const now = main.querySelectorAll("details");
      if (now.length === open.length) now.forEach((one, at) => { one.open = open[at]; });
      addCopyButtons();
      said.textContent = "Live";
      main.dataset.refreshed = new Date().toISOString();
    } catch {
      said.textContent = "Not reachable";
    }
  }
  let events = null;
  function listen() {
    events?.close();
    if (!box.checked) return;
    events = new EventSource("/api/v1/events");
    events.addEventListener("change", refresh);
    let lost = false;
    events.addEventListener("ready", () => {
      said.textContent = "Live";
      main.dataset.listening = "yes";
      if (lost) refresh();
      lost = false;
    });
    events.addEventListener("error", () => { lost = true; said.textContent = "Not reachable"; });
  }
  box.addEventListener("change", () => {
    localStorage.setItem("live", box.checked ? "yes" : "no");
    listen();
    if (box.checked) refresh();
  });
  addEventListener("pagehide", () => events?.close());
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  for (const what of ["visibilitychange", "focusout", "selectionchange"]) {
    document.addEventListener(what, () => { if (due) setTimeout(() => { if (due) refresh(); }, 50); });
  }

  // ── search as you type ──

  const form = document.querySelector("[data-as-you-type]");
  if (form) {
    const input = form.querySelector("[data-find]");
    let waiting = 0;
    let asked = null;
    input.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(async () => {
        asked?.abort();
        asked = new AbortController();
        const address = form.action + "?" + new URLSearchParams(new FormData(form));
        try {
          const fresh = await fetched(address, asked.signal);
          document.querySelector("#results").replaceChildren(...fresh.querySelector("#results").childNodes);
          history.replaceState(null, "", address);
          document.title = fresh.title;
        } catch { /* a later letter asked again, or the server is gone: Live says so */ }
      }, 150);
    });
  }

  document.querySelector("header nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // ── keys ──

  const places = { h: "/", m: "/memory", i: "/inbox", s: "/sessions", f: "/search", c: "/cost" };
  let before = "";
  function step(by) {
    const items = [...main.querySelectorAll(".item")].map((one) => (one.matches("a") ? one : one.querySelector("a, button, summary")))
      .filter(Boolean);
    if (!items.length) return;
    const at = items.findIndex((one) => one === document.activeElement || one.closest(".item")?.contains(document.activeElement));
    items[at < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, at + by))].focus();
  }
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) {
      if (event.key === "Escape") event.target.blur?.();
      return;
    }
    const key = event.key;
    if (before === "g" && places[key]) location.href = places[key];
    else if (key === "/") document.querySelector("[data-find]")?.focus();
    else if (key === "j" || key === "k") step(key === "j" ? 1 : -1);
    else { before = key; return; }
    before = "";
    event.preventDefault();
  });

  addCopyButtons();
  listen();
  document.documentElement.dataset.script = "on";
})();

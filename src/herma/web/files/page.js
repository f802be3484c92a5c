// What a page can do more with a script: keep itself up to date, and copy what is to be typed. It is complete without.
"use strict";
(() => {
  const main = document.querySelector("main");
  const seconds = Number(main.dataset.refresh);

  function addCopyButtons() {
    if (!navigator.clipboard) return; // only where the connection is trusted: this machine, or TLS
    for (const code of main.querySelectorAll("code.command")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "copy";
      button.setAttribute("aria-label", "Copy: " + code.textContent);
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
      });
      code.after(button);
    }
  }

  // ── up to date ──

  const live = document.createElement("label");
  const box = document.createElement("input");
  const said = document.createElement("span");
  box.type = "checkbox";
  box.checked = localStorage.getItem("live") !== "no";
  said.setAttribute("role", "status");
  said.textContent = "Live";
  live.className = "live";
  live.append(box, said);
  document.querySelector(".leave").before(live);
  box.addEventListener("change", () => {
    localStorage.setItem("live", box.checked ? "yes" : "no");
    if (box.checked) refresh();
  });

  let last = Date.now();
  async function refresh() {
    last = Date.now();
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (answer.status === 401) return location.reload();
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      const open = main.querySelector("details[open]") !== null;
      main.replaceChildren(...fresh.childNodes);
      if (open) main.querySelectorAll("details").forEach((one) => { one.open = true; });
      addCopyButtons();
      said.textContent = "Live";
      main.dataset.refreshed = new Date().toISOString();
    } catch {
      said.textContent = "Not reachable";
    }
  }

  // Nobody is disturbed in the middle of something: not while text is selected or a part of the page has the focus.
  function free() {
    return box.checked && !document.hidden && !String(getSelection()) && !main.contains(document.activeElement);
  }
  setInterval(() => { if (free() && Date.now() - last >= seconds * 1000) refresh(); }, 1000);

  addCopyButtons();
  document.documentElement.dataset.script = "on";
})();

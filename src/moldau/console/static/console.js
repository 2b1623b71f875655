// Keeps the figures of a page fresh, and follows a topic. Everything works without it, for reading.
"use strict";
(() => {
  const EVERY_MS = 2000, STALE_MS = 5000, ROWS_MAX = 500;
  const announce = (words) => { document.getElementById("announce").textContent = words; };
  const pause = document.getElementById("pause");
  const live = document.querySelectorAll("[data-live]");
  const isBusy = () => live.length && [...live].some((part) => part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea"));
  const stale = document.getElementById("stale");
  let isPaused = false, isLoading = false, seen = new Date();

  // --- what somebody has opened, scrolled to and is at, which new figures must not take away
  const nameOf = (each) => `${each.tagName} ${each.getAttribute("href") ?? each.getAttribute("aria-label") ?? each.textContent}`;
  const named = (part, name) => [...part.querySelectorAll("a, button, summary, [tabindex]")].filter((each) => nameOf(each) === name);
  function remembered(part) {
    const opened = [...part.querySelectorAll("details")].map((each) => each.open);
    const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const name = focused && nameOf(focused), at = focused ? named(part, name).indexOf(focused) : -1;
    return () => {
      [...part.querySelectorAll("details")].forEach((each, number) => { each.open = Boolean(opened[number]); });
      [...part.querySelectorAll(".scroll")].forEach((each, number) => { each.scrollLeft = scrolled[number] ?? 0; });
      if (focused) named(part, name)[at]?.focus({ preventScroll: true });
    };
  }

  // --- live regions: the same page is asked for again, and the parts that are marked are replaced
  async function refresh() {
    if (isPaused || isLoading || document.hidden || isBusy()) return;
    isLoading = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
      if (answer.type === "opaqueredirect") throw new Error("log in again");
      if (!answer.ok) throw new Error(`the console answers with ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of [...live, ...document.querySelectorAll("[data-live-too]")]) {
        const fresh = page.getElementById(part.id);
        if (fresh === null || fresh.innerHTML === part.innerHTML) continue;
        const restore = remembered(part);
        part.replaceChildren(...fresh.childNodes);
        restore();
      }
      seen = new Date();
      stale.hidden = true;
    } catch (error) { // what is shown stays, and is said to be old
      const why = error instanceof TypeError ? "the console does not answer" : error.message;
      if (new Date() - seen > STALE_MS) { stale.hidden = false; stale.textContent = `Not updated since ${seen.toLocaleTimeString()}: ${why}.`; }
    } finally { isLoading = false; }
  }
  const tail = document.getElementById("tail");
  if (pause && (live.length || tail)) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      isPaused = !isPaused;
      pause.setAttribute("aria-pressed", String(isPaused));
      pause.textContent = isPaused ? "Go on updating" : "Pause updates";
      announce(isPaused ? "Updates are paused" : "Updates go on");
    });
  }
  if (live.length) setInterval(refresh, EVERY_MS);

  // --- records as they come: text is only ever set as text
  const cell = (row, text, kind, label) => { const made = row.insertCell(); if (kind) made.className = kind; if (label) made.dataset.label = label; made.append(text); return made; };
  const block = (text) => { const made = document.createElement("pre"); made.textContent = text; return made; };
  function show(record) {
    const row = tail.tBodies[0].insertRow(0);
    row.className = "fresh";
    const link = document.createElement("a");
    link.href = record.link; link.textContent = String(record.offset);
    cell(row, String(record.partition), "n", "partition"); cell(row, link, "n", "offset"); cell(row, record.time, "time");
    cell(row, block(record.key.text), "", "key"); const value = cell(row, block(record.value.text + (record.value.is_cut ? " …" : "")), "value");
    const said = record.headers.map(([name, text]) => `${name}: ${text}`).concat(record.headers_left ? [`and ${record.headers_left} more`] : [], record.headers_problem || []);
    for (const words of said) { const made = document.createElement("div"); made.className = "headers"; made.textContent = words; value.append(made); }
    while (tail.tBodies[0].rows.length > ROWS_MAX) tail.tBodies[0].deleteRow(-1);
  }
  if (tail) {
    const state = document.getElementById("tail-state"), bar = document.getElementById("tail-progress");
    const waiting = [], newest = {};
    const source = new EventSource(tail.dataset.events);
    source.addEventListener("record", (event) => {
      const record = JSON.parse(event.data);
      if (record.offset <= (newest[record.partition] ?? -1)) return; // it came before the connection was cut, too
      newest[record.partition] = record.offset;
      waiting.push(record);
      if (waiting.length > ROWS_MAX) waiting.shift();
    });
    source.addEventListener("progress", (event) => {
      const told = JSON.parse(event.data);
      state.textContent = told.words;
      if (told.share !== null) { bar.hidden = false; bar.value = told.share; }
      tail.dataset.state = "open";
    });
    source.addEventListener("done", (event) => { source.close(); state.textContent = JSON.parse(event.data).words; announce(state.textContent); tail.dataset.state = "done"; });
    source.addEventListener("refused", (event) => { source.close(); state.textContent = JSON.parse(event.data).words; announce(state.textContent); });
    source.addEventListener("error", () => { state.textContent = source.readyState === EventSource.CLOSED ? "The console refuses to go on: load the page again." : "The console does not answer; trying again."; });
    setInterval(() => { if (!isPaused) while (waiting.length) show(waiting.shift()); }, 200);
  }
  const all = document.getElementById("choose-all");
  if (all) { all.hidden = false; all.addEventListener("click", () => { for (const box of document.querySelectorAll("input[name=record]")) box.checked = true; }); }
})();

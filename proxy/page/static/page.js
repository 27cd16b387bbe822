// The page's one script: it keeps pages as they live, fetches long ones piece by piece, and takes the keyboard.
// Markup comes from the server, which escapes it; nothing here makes markup out of text.
"use strict";

(() => {
  const EVERY = 3000;
  const view = document.body.dataset.view;
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const number = new Intl.NumberFormat("en-US");

  // Asking the server.

  async function piece(address) {
    const answer = await fetch(address, { headers: { accept: "text/html" }, cache: "no-store" });
    if (answer.status === 401) location.reload();
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const holder = document.createElement("template");
    holder.innerHTML = answer.status === 204 ? "" : await answer.text();
    times(holder.content);
    return { headers: answer.headers, status: answer.status, content: holder.content };
  }

  function state(name, word) {
    const shown = one("#live");
    if (!shown || shown.dataset.state === name) return;
    shown.dataset.state = name;
    one("span", shown).textContent = word;
  }

  function keepFresh(refresh) {
    const next = () => setTimeout(async () => {
      if (!document.hidden) {
        try {
          await refresh();
          state("live", "Live");
        } catch {
          state("away", "No answer, trying again");
        }
      }
      next();
    }, EVERY);
    state("live", "Live");
    next();
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) refresh().catch(() => state("away", "No answer, trying again"));
    });
  }

  // Times: how long since in lists, the reader's own clock elsewhere.

  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

  function ago(seconds) {
    if (seconds < 2) return "now";
    for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (seconds >= unit) return `${Math.floor(seconds / unit)} ${name}`;
    }
    return `${Math.floor(seconds)} s`;
  }

  function times(within) {
    for (const time of all("time[data-at]", within)) {
      const at = new Date(Number(time.dataset.at) * 1000);
      time.dateTime = at.toISOString();
      time.title = full.format(at);
      if (time.dataset.show === "clock") time.textContent = clock.format(at);
      if (time.dataset.show === "full") time.textContent = full.format(at);
    }
  }

  function ages() {
    const now = Date.now() / 1000;
    for (const time of all("time[data-at]:not([data-show])")) {
      const text = ago(now - Number(time.dataset.at));
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // Moving with the keyboard.

  function step(places, by) {
    const seen = places.filter((place) => place.offsetParent !== null);
    if (!seen.length) return;
    const at = seen.findIndex((place) => place.contains(document.activeElement));
    const to = at < 0 ? nearest(seen, by) : Math.min(seen.length - 1, Math.max(0, at + by));
    go(seen[to]);
  }

  function nearest(places, by) {
    const below = places.findIndex((place) => place.getBoundingClientRect().top >= 0);
    if (below < 0) return places.length - 1;
    return by > 0 ? below : Math.max(0, below - 1);
  }

  function go(place) {
    place.focus({ preventScroll: true });
    place.scrollIntoView({ block: place.matches(".finding") ? "center" : "nearest" });
  }

  function keys(table) {
    document.addEventListener("keydown", (event) => {
      if (event.metaKey || event.ctrlKey || event.altKey) return;
      const typing = event.target.matches("input, textarea");
      if (one("dialog[open]") || (typing && event.key !== "Escape")) return;
      const act = table[event.key];
      if (act && act(event) !== false) event.preventDefault();
    });
  }

  function help() {
    const button = one("#help-open");
    if (!button) return () => {};
    const show = () => one("#help").showModal();
    button.hidden = false;
    button.addEventListener("click", show);
    return show;
  }

  // The list.

  function list(show) {
    const rows = one("#rows");
    const filter = one("#filter");
    const table = one("#list");
    if (!rows) return waiting(show);
    const live = table.dataset.since !== "";
    let since = Number(table.dataset.since);

    function count() {
      const shown = all("tr", rows);
      const found = shown.filter((row) => !row.hidden).length;
      one("#nothing").hidden = found > 0;
      const whole = number.format(shown.length) + (one("#older") ? "+" : "");
      one("#count").textContent = found === shown.length ? whole : `${number.format(found)} of ${whole}`;
    }

    function sift(within) {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of within) row.hidden = !words.every((word) => row.dataset.search.includes(word));
    }

    function take(content, first) {
      const fresh = all("tr", content);
      const known = new Map(all("tr", rows).map((row) => [row.dataset.id, row]));
      const focused = document.activeElement.closest?.("tr")?.dataset.id;
      for (const row of fresh) {
        known.get(row.dataset.id)?.remove();
        if (row.dataset.root !== row.dataset.id) known.get(row.dataset.root)?.remove();
        if (first) row.classList.add("fresh");
      }
      sift(fresh);
      if (first) rows.prepend(...fresh);
      else rows.append(...fresh);
      const again = fresh.find((row) => row.dataset.id === focused || row.dataset.root === focused);
      if (again) one("a", again).focus({ preventScroll: true });
      count();
    }

    async function rest() {
      let next = table.dataset.next;
      const older = one("#older");
      while (next && all("tr", rows).length < 1000) {
        const found = await piece(`/lethe/ui/rows?before=${next}`);
        take(found.content, false);
        next = found.headers.get("x-lethe-next") ?? "";
        if (next && older) older.href = `/lethe/ui?before=${next}`;
      }
      if (!next) older?.remove();
      count();
    }

    async function refresh() {
      const found = await piece(`/lethe/ui/rows?since=${since}`);
      if (found.status !== 204) {
        since = Math.max(since, ...all("tr", found.content).map((row) => Number(row.dataset.at)));
        take(found.content, true);
      }
      ledger(found.headers.get("x-lethe-ledger"));
    }

    filter.closest("label").hidden = false;
    filter.addEventListener("input", () => { sift(all("tr", rows)); count(); });
    const clear = () => { filter.value = ""; sift(all("tr", rows)); count(); };
    one("#filter-clear").addEventListener("click", () => { clear(); filter.focus(); });
    keys({
      j: () => step(all("tr a", rows), 1),
      k: () => step(all("tr a", rows), -1),
      "/": () => { filter.focus(); filter.select(); },
      "?": show,
      Escape: () => {
        if (filter.value) clear();
        document.activeElement.blur();
      },
    });
    filter.addEventListener("keydown", (event) => {
      if (event.key === "Enter") step(all("tr a", rows), 1);
    });
    if (live) keepFresh(refresh);
    // After the first paint: what is below the window can wait for it.
    requestAnimationFrame(() => setTimeout(() => rest().catch(() => count()), 0));
  }

  function waiting(show) {
    keys({ "?": show });
    if (!one("#blank")) return;
    keepFresh(async () => {
      const found = await piece("/lethe/ui/rows?since=0");
      const state = found.headers.get("x-lethe-ledger");
      if (found.status !== 204 || state !== one("#ledger").dataset.state) location.reload();
    });
  }

  function ledger(name) {
    const shown = one("#ledger");
    if (!name || shown.dataset.state === name) return;
    shown.dataset.state = name;
    one("span", shown).textContent = `Ledger ${name}`;
  }

  // One conversation.

  function conversation(show) {
    const id = document.body.dataset.id;
    const base = `/lethe/ui/${id}`;
    let turns = Number(document.body.dataset.turns);

    async function unfold(link) {
      const body = link.closest("tbody");
      link.setAttribute("aria-busy", "true");
      const found = await piece(link.dataset.piece);
      body.classList.remove("folded");
      body.replaceChildren(...all("tr", found.content));
      return body;
    }

    async function further(link) {
      link.setAttribute("aria-busy", "true");
      const found = await piece(link.dataset.piece);
      link.closest("p").replaceWith(found.content);
      watch();
    }

    async function wholeMessage(link) {
      const found = await piece(link.href);
      const message = one(".message", found.content);
      link.closest(".message").replaceWith(message);
      message.focus({ preventScroll: true });
    }

    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        further(entry.target).catch(() => entry.target.removeAttribute("aria-busy"));
      }
    }, { rootMargin: "800px" });
    const watch = () => all("a.piece").forEach((link) => seen.observe(link));

    async function toTurn(turn) {
      let row = one(`#t${turn}`);
      if (!row) {
        const folded = all("a.unfold").find((link) => {
          const asked = new URL(link.dataset.piece, location.href).searchParams;
          return Number(asked.get("first")) <= turn && turn <= Number(asked.get("last"));
        });
        if (folded) await unfold(folded);
        row = one(`#t${turn}`);
      }
      if (!row) return;
      row.focus({ preventScroll: true });
      row.scrollIntoView({ block: "center" });
    }

    async function refresh() {
      const found = await piece(`${base}/live?turns=${turns}`);
      const moved = found.headers.get("x-lethe-moved");
      if (moved) return location.replace(`/lethe/ui/${moved}`);
      if (found.status === 204) return;
      turns = Number(found.headers.get("x-lethe-turns"));
      one("#overview").replaceChildren(...one('[data-part="overview"]', found.content).childNodes);
      one("#turns").append(...all('[data-part="turns"] tbody', found.content));
      const last = all("#messages .message").at(-1);
      const more = one("#messages a.piece");
      if (last && !more) await after(Number(last.dataset.place) + 1);
    }

    async function after(place) {
      const found = await piece(`${base}/messages?first=${place}`);
      one("#messages").append(found.content);
      watch();
    }

    document.addEventListener("click", (event) => {
      const link = event.target.closest("a");
      if (link && (event.metaKey || event.ctrlKey || event.shiftKey)) return;
      const bar = event.target.closest(".bar");
      let act = null;
      if (link?.matches(".unfold")) act = unfold(link).then((body) => go(one("tr", body)));
      else if (link?.matches(".piece")) act = further(link);
      else if (link?.matches(".whole")) act = wholeMessage(link);
      else if (link?.matches(".to-message") && one(`#m${link.dataset.message}`)) {
        const message = one(`#m${link.dataset.message}`);
        message.focus({ preventScroll: true });
        message.scrollIntoView({ block: "start" });
        act = Promise.resolve();
      } else if (bar) act = toTurn(Number(bar.dataset.turn));
      if (!act) return;
      event.preventDefault();
      act.catch(() => state("away", "No answer, trying again"));
    });

    // A bar in words, where the pointer or the row in focus is.
    function say(turn) {
      all(".bar.on").forEach((bar) => bar.classList.remove("on"));
      const bar = turn && one(`.bar[data-turn="${turn}"]`);
      bar?.classList.add("on");
      one("#readout").textContent = bar ? one("title", bar).textContent : "Tokens of each turn";
    }
    one("#overview").addEventListener("pointerover", (event) => say(event.target.closest(".bar")?.dataset.turn));
    one("#overview").addEventListener("pointerleave", () => say(null));
    one("#turns").addEventListener("focusin", (event) => say(event.target.closest("tr")?.dataset.turn));
    one("#turns").addEventListener("pointerover", (event) => say(event.target.closest("tr")?.dataset.turn));
    one("#turns").addEventListener("pointerleave", () => say(null));

    const forget = one("#forget");
    forget.hidden = false;
    forget.addEventListener("click", () => one("#forget-sure").showModal());
    one("#forget-yes").addEventListener("click", async () => {
      const answer = await fetch(`/lethe/conversations/${id}`, { method: "DELETE" });
      if (answer.ok || answer.status === 404) location.assign("/lethe/ui");
      else state("away", "It could not be forgotten");
    });

    keys({
      j: () => step(all("#turns .turn, #turns .unfold"), 1),
      k: () => step(all("#turns .turn, #turns .unfold"), -1),
      n: () => step(all(".finding"), 1),
      p: () => step(all(".finding"), -1),
      m: () => one("#h-messages").scrollIntoView({ block: "start" }),
      "?": show,
      Escape: () => location.assign("/lethe/ui"),
    });
    watch();
    keepFresh(refresh);
    const asked = /^#t(\d+)$/.exec(location.hash);
    if (asked) toTurn(Number(asked[1]));
  }

  times(document);
  const show = help();
  if (view === "list") { list(show); setInterval(ages, 1000); }
  if (view === "conversation") conversation(show);
  if (view === "message" || view === "missing") {
    keys({ "?": show, Escape: () => history.back() });
  }
})();

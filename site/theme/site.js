// The search, and the choice of a version. Everything else works without scripts.
"use strict";

const { root, version } = document.documentElement.dataset;

const form = document.querySelector(".search");
const input = form.querySelector("input");
const list = document.getElementById("site-found");
const count = form.querySelector(".count");
form.hidden = false;

// The index is loaded when somebody begins to search. It is a script, so that it can be read from a folder, too.
let loading;
const load = () =>
  (loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = `${root}search-index.js`;
    script.onload = () => done(searchIndex);
    script.onerror = failed;
    document.head.append(script);
  }));

// The words that are searched. Those of a question say nothing, unless there are no others.
const common = new Set(["a", "an", "and", "do", "how", "i", "in", "is", "it", "of", "on", "the", "to", "with"]);
function words(text) {
  const all = text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];
  const rare = all.filter((word) => !common.has(word));
  return [...new Set((rare.length ? rare : all).map(stem))];
}

// What retry, retries and retried begin with.
const stem = (word) => word.replace(/(?<=[a-z]{4})(ies|ied|ing|ed|es|s|y|e)$/, "");

// Counts where a word begins in a text, up to a limit.
function begins(text, word, limit) {
  let n = 0;
  for (let i = text.indexOf(word); i >= 0 && n < limit; i = text.indexOf(word, i + 1)) {
    if (i === 0 || !/[\p{L}\p{N}_]/u.test(text[i - 1])) n++;
  }
  return n;
}

// Reference pages and lists of changes have every word, so they come after pages that explain.
const weights = { "api.html": 0.5, "function-contract.html": 0.7, "protocol.html": 0.5, "guarantees.html": 0.4, "changelog.html": 0.3, "bench/results.html": 0.4 };
const weight = (part) => weights[part.u.split("#")[0]] ?? 1;

function search(parts, query) {
  const wanted = words(query);
  if (!wanted.length) return [];
  const rows = parts.map((part) => {
    part.l ??= [part.t, part.h ?? "", part.x].map((text) => text.toLowerCase());
    return wanted.map((word) => {
      const [title, heading, text] = part.l.map((text, i) => begins(text, word, i === 2 ? 8 : 1));
      const first = part.h ? 0 : title; // the beginning of a page with the word in its name
      return 9 * first + 6 * heading + 2 * title + Math.sqrt(text);
    });
  });
  // A rare word says more than a common one.
  const rarity = wanted.map((_, i) => Math.log(1 + parts.length / (1 + rows.filter((row) => row[i]).length)));
  return parts
    .map((part, n) => {
      const has = rows[n].filter(Boolean).length / wanted.length;
      const score = rows[n].reduce((sum, s, i) => sum + s * rarity[i], 0);
      return { part, score: score * has ** 3 * weight(part) };
    })
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score)
    .slice(0, 12)
    .map(({ part }) => part);
}

// The text around the first word that is wanted.
function excerpt(text, query) {
  const lower = text.toLowerCase();
  const at = words(query).map((word) => lower.indexOf(word)).filter((i) => i >= 0);
  const near = Math.min(...at, text.length) - 40;
  const begin = at.length && near > 0 ? text.indexOf(" ", near) + 1 : 0;
  return (begin > 0 ? "…" : "") + text.slice(begin, begin + 140) + (text.length > begin + 140 ? "…" : "");
}

let chosen = -1;
function choose(n) {
  const options = [...list.children];
  chosen = options.length ? (n + options.length) % options.length : -1;
  options.forEach((option, i) => option.setAttribute("aria-selected", i === chosen));
  options[chosen]?.scrollIntoView({ block: "nearest" });
  if (chosen >= 0) input.setAttribute("aria-activedescendant", options[chosen].id);
  else input.removeAttribute("aria-activedescendant");
}

function show(parts, query) {
  list.replaceChildren(
    ...parts.map((part, i) => {
      const option = document.createElement("a");
      option.id = `site-found-${i}`;
      option.href = root + part.u;
      option.tabIndex = -1;
      option.setAttribute("role", "option");
      const name = document.createElement("b");
      name.textContent = part.h ? `${part.t} › ${part.h}` : part.t;
      const text = document.createElement("span");
      text.textContent = excerpt(part.x, query);
      option.append(name, text);
      return option;
    }),
  );
  list.hidden = !parts.length;
  input.setAttribute("aria-expanded", String(!list.hidden));
  count.textContent = query.trim() && !parts.length ? "Nothing found" : "";
  choose(parts.length ? 0 : -1);
}

const close = () => show([], "");

input.addEventListener("focus", () => load().catch(() => {}));
input.addEventListener("input", async () => {
  const query = input.value;
  try {
    const parts = search(await load(), query);
    if (query === input.value) show(parts, query);
  } catch {
    count.textContent = "The index cannot be loaded";
  }
});
input.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    choose(chosen + step);
  } else if (event.key === "Escape") {
    input.value = "";
    close();
    input.blur();
  }
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  list.children[chosen]?.click();
});
list.addEventListener("click", close); // a link to this page does not load it
document.addEventListener("click", (event) => form.contains(event.target) || close());
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if ((event.key === "/" && !typing) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
    event.preventDefault();
    input.focus();
    input.select();
  }
});

// The list of pages shows the place of this one.
const pages = document.getElementById("site-pages");
pages.scrollTop = pages.querySelector("[aria-current]").offsetTop - pages.clientHeight / 2;

// The same page in another version, or its first page.
const link = document.querySelector(".version");
if (typeof siteVersions !== "undefined" && siteVersions.length > 1) {
  const select = document.createElement("select");
  select.className = "version";
  select.setAttribute("aria-label", "Version");
  select.append(...siteVersions.map((name) => new Option(name, name, false, name === version)));
  select.addEventListener("change", async () => {
    const folder = new URL(`${root}./`, location.href);
    const page = location.href.slice(folder.href.length);
    const other = new URL(`../${select.value}/`, folder);
    const there = await fetch(new URL(page, other), { method: "HEAD" }).then((r) => r.ok, () => false);
    location.href = new URL(there ? page : "index.html", other).href;
  });
  link.replaceWith(select);
}

// Names and roles that the theme leaves out (axe finds them). The search is in a shadow root, and made when it is first used.
const NAMES = [
  ["nav.md-path", { "aria-label": "Breadcrumbs" }],
  ["nav.md-code__nav", { role: "none" }],
  [
    "nav.md-nav nav.md-nav:not(.md-nav--secondary)",
    { role: "none", "aria-label": null, "aria-labelledby": null, "aria-expanded": null },
  ],
  ["label.md-overlay", { "aria-hidden": "true", "aria-label": null }],
];

const SEARCH_NAMES = [
  ["input[role=combobox]", { "aria-label": "Search", "aria-expanded": "true", "aria-controls": "search-results" }],
  ["div:has(> div > div > input)", { role: "search", "aria-label": "Search" }],
  ["div:not(:has(> h3)) > ol", { id: "search-results" }],
  ["button:first-of-type", { "aria-label": "Search" }],
  ["button:last-of-type", { "aria-label": "Filters" }],
  ["div:has(> div > h3)", { role: "region", "aria-label": "Filters", tabindex: "0" }],
];

function mend(root, names) {
  for (const [selector, attributes] of names) {
    for (const element of root.querySelectorAll(selector)) {
      for (const [name, value] of Object.entries(attributes)) {
        if (value === null) element.removeAttribute(name);
        else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
      }
    }
  }
}

function mendSearch() {
  for (const { shadowRoot } of document.body.querySelectorAll("*")) {
    if (shadowRoot === null || shadowRoot.mended) continue;
    shadowRoot.mended = true;
    new MutationObserver(() => mend(shadowRoot, SEARCH_NAMES)).observe(shadowRoot, { childList: true, subtree: true });
    mend(shadowRoot, SEARCH_NAMES);
  }
}

new MutationObserver(() => {
  mend(document, NAMES);
  mendSearch();
}).observe(document.body, { childList: true, subtree: true });
mend(document, NAMES);
mendSearch();

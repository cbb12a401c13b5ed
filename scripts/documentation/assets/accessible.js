// Names and roles that the theme leaves out (axe finds them). The search is in a shadow root, and made when it is first used.
const NAMES = [
  ["nav.md-path", { "aria-label": "Breadcrumbs" }],
  ["nav.md-code__nav", { role: "none" }],
  [
    "nav.md-nav nav.md-nav:not(.md-nav--secondary)",
    { role: "none", "aria-label": null, "aria-labelledby": null, "aria-expanded": null },
  ],
  ["label.md-overlay", { "aria-hidden": "true", "aria-label": null }],
  [".md-typeset__scrollwrap", { tabindex: "0" }],
];

const SEARCH_NAMES = [
  ["input[role=combobox]", { "aria-label": "Search", "aria-expanded": "true", "aria-controls": "search-results" }],
  ["div:has(> div > div > input)", { role: "search", "aria-label": "Search" }],
  ["div:not(:has(> h3)) > ol", { id: "search-results" }],
  ["button:first-of-type", { "aria-label": "Search" }],
  ["button:last-of-type", { "aria-label": "Filters" }],
  ["div:has(> div > h3 + h4)", { role: "region", "aria-label": "Filters", tabindex: "0" }],
  ["li:not(:has(a, li))", { style: "color: var(--md-default-fg-color); opacity: 1" }], // the path of a result
  ["h3", { "aria-level": "2" }],
  ["h4", { "aria-level": "3" }],
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

// On a narrow screen a row is shown as a list: each cell below the header of its column.
function labelCells() {
  for (const table of document.querySelectorAll(".md-typeset table:not([class]):not([data-columns])")) {
    const headers = [...table.rows[0].cells].map((cell) => cell.textContent);
    table.dataset.columns = headers.length > 5 ? "many" : "few";
    for (const row of table.tBodies[0]?.rows ?? []) {
      [...row.cells].forEach((cell, column) => {
        cell.dataset.header = column > 0 && cell.textContent.trim() ? headers[column] : "";
      });
    }
  }
}

// A table whose rows have names has an empty cell in its corner, which is no header.
function mendTables() {
  for (const corner of document.querySelectorAll("thead th:empty")) corner.replaceWith(document.createElement("td"));
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
  mendTables();
  labelCells();
  mendSearch();
}).observe(document.body, { childList: true, subtree: true });
mend(document, NAMES);
mendTables();
labelCells();
mendSearch();

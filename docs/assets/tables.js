// Tables of results: sort by a click on a column's name, filter by typing, copy a row's command, see its curves.
// Without scripts the tables are the same, only still.
(() => {
  const text = (cell) => cell.textContent.trim();
  const columnsOf = (table) => [...table.tHead.rows[0].cells].map(text);

  // "37.38 ± 1.27 ¹" counts as 37.38; words are compared as words, and empty cells come last.
  const compare = (one, other) => {
    if (!one || !other) return (one ? 0 : 1) - (other ? 0 : 1);
    const numbers = [parseFloat(one), parseFloat(other)];
    return numbers.some(Number.isNaN) ? one.localeCompare(other) : numbers[0] - numbers[1];
  };

  const sortBy = (table, column) => {
    const head = table.tHead.rows[0].cells[column];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    const value = (row) => text(row.cells[column]);
    rows.sort((one, other) =>
      !value(one) || !value(other) ? compare(value(one), value(other)) : (down ? -1 : 1) * compare(value(one), value(other)));
    table.tBodies[0].append(...rows);
  };

  // The rule of results.md: "cora", "nodeformer (cora-random)", "0; splits 0-4" make one command.
  const commandOf = ({ data, model, seeds }) => {
    const [, name, recipe] = model.match(/^(\S+)(?: \((.+)\))?$/);
    const [first, splits] = seeds.split(/; splits? /);
    const words = ["graphzoo", "reproduce", name, data];
    if (recipe) words.push("--recipe", recipe);
    words.push("--seeds", first);
    if (splits) words.push("--splits", splits);
    return words.join(" ");
  };

  const button = (label, title, act) => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", textContent: label, title, onclick: () => act(made) });
    made.className = "gz-button";
    return made;
  };

  const copyButton = (command) => button("copy", command, async (pressed) => {
    await navigator.clipboard.writeText(command);
    pressed.textContent = "copied";
    setTimeout(() => { pressed.textContent = "copy"; }, 1500);
  });

  // Pictures are named after rows: figures/MODEL-DATA.png, or figures/MODEL-DATA-RECIPE.png.
  const curvesOf = ({ data, model }) => {
    const name = model.replace(/^(\S+)(?: \((.+)\))?$/, (_, kind, recipe) => [kind, data, recipe].filter(Boolean).join("-"));
    return document.querySelector(`img[src$="figures/${name}.png"]`);
  };

  const addColumn = (table, columns) => {
    const head = table.tHead.rows[0].appendChild(document.createElement("th"));
    head.textContent = "command";
    for (const row of table.tBodies[0].rows) {
      const values = Object.fromEntries(columns.map((name, number) => [name, text(row.cells[number])]));
      const cell = row.insertCell();
      cell.append(copyButton(commandOf(values)));
      const picture = curvesOf(values);
      if (picture) cell.append(button("curves", `curves of ${values.model} on ${values.data}`, () => picture.scrollIntoView({ block: "center" })));
    }
  };

  const addFilter = (table) => {
    const box = document.createElement("input");
    Object.assign(box, { type: "search", placeholder: "show rows with …", className: "gz-filter" });
    box.setAttribute("aria-label", "Show only rows with these words");
    box.oninput = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of table.tBodies[0].rows) {
        const all = text(row).toLowerCase();
        row.hidden = !words.every((word) => all.includes(word));
      }
    };
    (table.closest(".md-typeset__scrollwrap") ?? table).before(box);
  };

  const makeSortable = (table) => [...table.tHead.rows[0].cells].forEach((head, column) => {
    const label = text(head);
    if (!label) return;
    head.replaceChildren(button(label, `sort by ${label}`, () => sortBy(table, column)));
    head.firstChild.className = "gz-sort";
  });

  const isResults = (node) => node.nodeType === Node.COMMENT_NODE && node.data.trim().startsWith("results:");
  for (const article of document.querySelectorAll("article")) {
    for (const mark of [...article.childNodes].filter(isResults)) {
      let next = mark.nextElementSibling;
      while (next && next.tagName !== "TABLE" && !next.querySelector?.("table")) next = next.nextElementSibling;
      const table = next?.tagName === "TABLE" ? next : next?.querySelector("table");
      if (!table) continue;
      const columns = columnsOf(table);
      table.dataset.results = "";
      if (table.tBodies[0].rows.length > 8) addFilter(table);
      makeSortable(table);
      if (["data", "model", "seeds"].every((name) => columns.includes(name))) addColumn(table, columns);
    }
  }
})();

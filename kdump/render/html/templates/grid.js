// Parts of the page by name, each of which fills its element.
const sections = {};
// A table of any length: only the rows in sight are elements. Arrow keys move, Enter opens the details.
const ROWS_PRINTED = 400;
function grid({ label, columns, total, order, open, rowClass }) {
  let rows = Array.from({ length: total }, (_, row) => row), sort = null, at = 0, selected = -1, first = -1, last = -1;
  const space = make("div", { class: "space", role: "rowgroup" });
  const scroll = make("div", { class: "scroll", role: "presentation" }, space);
  const heads = columns.map((column, number) => make(
    "div", { role: "columnheader", class: `${column.number ? "number" : ""} ${column.kind === "wide" ? "wide" : ""}`, "aria-sort": "none" },
    make("button", { type: "button", text: column.name, title: column.title || column.name, onclick: () => sortBy(number) }),
  ));
  const element = make(
    "div", { class: "grid", role: "grid", "aria-label": label, "aria-rowcount": total + 1, "aria-colcount": columns.length },
    make("div", { role: "rowgroup" }, make("div", { class: "head", role: "row", "aria-rowindex": 1 }, ...heads)), scroll,
  );
  const broad = matchMedia("(min-width: 1400px)");
  const setColumns = () => {
    const there = columns.filter((column) => broad.matches || column.kind !== "wide");
    element.style.setProperty("--columns", there.map((column) => column.width).join(" "));
  };
  broad.addEventListener("change", setColumns);
  setColumns();
  const height = () => parseFloat(getComputedStyle(element).getPropertyValue("--row")) * parseFloat(getComputedStyle(document.documentElement).fontSize);

  function line(index, each) {
    const row = rows[index];
    const element = make("div", {
      class: `line ${rowClass ? rowClass(row) : ""}`, role: "row", tabindex: index === at ? 0 : -1,
      "aria-rowindex": index + 2, "aria-selected": row === selected ? "true" : "false",
    }, ...columns.map((column) => {
      const cell = make("div", { role: "gridcell", class: `cell ${column.kind || ""} ${column.number ? "number" : ""}`, "data-label": column.name });
      const shown = column.show(row);
      if (shown instanceof Node) cell.append(shown); else { cell.textContent = shown; cell.title = shown; }
      return cell;
    }));
    element.style.top = `${index * each}px`;
    element.dataset.index = index;
    return element;
  }
  function render(force) {
    const each = height(), begin = Math.max(0, Math.floor(scroll.scrollTop / each) - 6);
    const end = Math.min(rows.length, begin + Math.ceil((scroll.clientHeight || 400) / each) + 12);
    if (!force && begin === first && end === last) return;
    first = begin; last = end;
    space.style.height = `${rows.length * each}px`;
    const focused = space.contains(document.activeElement);
    const shown = [];
    for (let index = begin; index < end; index += 1) shown.push(line(index, each));
    space.replaceChildren(...shown);
    if (!rows.length) space.replaceChildren(make("div", { role: "row" }, make("div", { class: "empty", role: "gridcell", text: "Nothing matches." })));
    if (focused) focusRow();
  }
  function focusRow() {
    const row = space.querySelector(`[data-index="${at}"]`);
    if (row) { for (const other of space.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1; row.tabIndex = 0; row.focus({ preventScroll: true }); }
  }
  function go(index) {
    if (!rows.length) return;
    at = Math.max(0, Math.min(rows.length - 1, index));
    const each = height(), top = at * each;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    else if (top + each > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + each - scroll.clientHeight;
    render(true);
    focusRow();
  }
  function choose(index) {
    at = index;
    selected = rows[index];
    render(true);
    if (open) open(selected);
  }
  function sortBy(number, down) {
    const descending = down === undefined ? (sort && sort.number === number ? !sort.descending : Boolean(columns[number].number)) : down;
    sort = { number, descending };
    const key = columns[number].key, sign = descending ? -1 : 1;
    rows.sort((left, right) => {
      const one = key(left), other = key(right);
      if (one === other) return left - right;
      if (one === null || one === undefined) return 1;
      if (other === null || other === undefined) return -1;
      return one < other ? -sign : sign;
    });
    heads.forEach((head, column) => head.setAttribute("aria-sort", column !== number ? "none" : descending ? "descending" : "ascending"));
    at = 0;
    scroll.scrollTop = 0;
    render(true);
  }
  scroll.addEventListener("scroll", () => requestAnimationFrame(() => render(false)), { passive: true });
  new ResizeObserver(() => render(true)).observe(scroll);
  space.addEventListener("click", (event) => {
    const row = event.target.closest(".line");
    if (row) { choose(Number(row.dataset.index)); focusRow(); }
  });
  space.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(scroll.clientHeight / height()) - 1);
    const steps = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: rows.length - 1 };
    if (event.key in steps) { event.preventDefault(); go(steps[event.key]); }
    else if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(at); focusRow(); }
  });
  addEventListener("beforeprint", () => {
    const each = height();
    space.replaceChildren(...rows.slice(0, ROWS_PRINTED).map((_, index) => line(index, each)));
    if (rows.length > ROWS_PRINTED) space.append(make("div", { role: "row" }, make("div", { class: "empty", role: "gridcell", text: `${count(rows.length - ROWS_PRINTED)} more rows are not printed.` })));
  });
  addEventListener("afterprint", () => render(true));
  onLook(() => render(true));
  if (order) sortBy(order[0], order[1]);
  return {
    element,
    filter(wanted) {
      rows = [];
      for (let row = 0; row < total; row += 1) if (wanted(row)) rows.push(row);
      element.setAttribute("aria-rowcount", rows.length + 1);
      if (sort) sortBy(sort.number, sort.descending); else { at = 0; scroll.scrollTop = 0; render(true); }
      return rows.length;
    },
    show(row) {
      const index = rows.indexOf(row);
      if (index < 0) return;
      go(index);
      choose(index);
    },
    render: () => render(true),
  };
}

const all = of => [...document.querySelectorAll(of)];
const two = n => String(n).padStart(2, "0");
const span = s => {
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600), Math.floor(s / 60) % 60];
  return d ? `${d} d ${h % 24} h` : h ? `${h} h ${two(m)} min` : `${m} min ${two(s % 60)} s`;
};
const tick = () => {
  for (const one of all("[data-until]")) {
    const left = Math.ceil((Date.parse(one.dataset.until) - Date.now()) / 1000);
    one.textContent = left <= 0 ? " (over by now)" : ` (${span(left)} left)`;
  }
  for (const one of all("[data-made]")) {
    const age = Math.max(0, Math.floor((Date.now() - Date.parse(one.dataset.made)) / 60000));
    one.textContent = age ? ` (${span(age * 60).replace(" 00 s", "")} ago)` : "";
  }
};
tick();
setInterval(tick, 1000);
const unfold = () => {
  const id = location.hash.slice(1);
  const [card, incident] = [id.split("/")[0], id].map(each => document.getElementById(each));
  const fold = card && card.querySelector(":scope > details");
  if (fold) fold.open = true;
  for (let one = incident; one; one = one.parentElement) if (one.matches("details")) one.open = true;
  if (card) (incident || card).scrollIntoView();
};
unfold();
addEventListener("hashchange", unfold);
const [find, kind] = all("#find, #kind");
if (find) {
  const cards = all("[data-find]");
  const filter = () => {
    const words = find.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const one of cards) {
      const {find: text, kinds} = one.dataset;
      const isKind = !kind.value || !kinds || kinds.split(" ").includes(kind.value);
      one.hidden = !(isKind && words.every(word => text.includes(word)));
      shown += !one.hidden && one.matches("section, li");
    }
    for (const one of all("details.others")) one.open = Boolean(words[0] && one.querySelector("[data-find]:not([hidden])"));
    document.getElementById("found").textContent = words[0] || kind.value
      ? shown ? `${shown} cluster${shown > 1 ? "s" : ""} found` : "no cluster is like that" : "";
  };
  find.addEventListener("input", filter);
  kind.addEventListener("input", filter);
  document.querySelector(".tools").hidden = false;
}

const records = [...document.querySelectorAll("article")];
const texts = records.map((record) => record.textContent.toLowerCase());
const search = document.getElementById("search");
const found = document.getElementById("found");
search.addEventListener("input", () => {
  const wanted = search.value.toLowerCase();
  let count = 0;
  records.forEach((record, at) => {
    record.hidden = !texts[at].includes(wanted);
    count += !record.hidden;
  });
  found.textContent = wanted ? `${count} of ${records.length} records` : "";
});

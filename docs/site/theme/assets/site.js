// What the theme leaves out for readers who use a keyboard or hear the page: names of landmarks, and focus for what scrolls.
const named = () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((nav, k) => nav.setAttribute("aria-label", `Code block ${k + 1}`));
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .md-sidebar__scrollwrap").forEach((box) => {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
  });
};
new MutationObserver(named).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", named);
named();

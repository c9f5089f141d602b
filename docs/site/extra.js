// Wide tables scroll sideways, and the keyboard reaches them, too; the search has a name.
document$.subscribe(() => setTimeout(() => {
  for (const one of document.querySelectorAll(".md-typeset__scrollwrap")) one.tabIndex = 0;
  document.querySelector(".md-search")?.setAttribute("aria-label", "search");
}));

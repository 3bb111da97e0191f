// Sets the theme before anything is drawn: this script is no module, so that the page waits for it.
document.documentElement.dataset.theme = localStorage.getItem("theme") ?? "auto";

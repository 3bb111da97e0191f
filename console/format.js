// Figures for people.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (value) => grouped.format(value);

/** Returns "1 worker", "2 workers". */
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** Returns three digits that matter, with a unit of these, each 1,000 or 1,024 times the one before. */
function scaled(value, step, units) {
  let unit = 0;
  while (value >= step && unit < units.length - 1) [value, unit] = [value / step, unit + 1];
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

export const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
export const rate = (value) => `${scaled(value, 1000, ["B", "kB", "MB", "GB", "TB"])}/s`;

/** Returns a time in milliseconds with the unit that suits it. */
export function ms(value) {
  if (value < 0.001) return `${Math.round(value * 1e6)} ns`;
  if (value < 1) return `${Math.round(value * 1000)} µs`;
  if (value < 10) return `${value.toFixed(1)} ms`;
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${(value / 1000).toFixed(value < 10_000 ? 2 : 1)} s`;
  return `${Math.floor(value / 60_000)} min ${Math.round((value % 60_000) / 1000)} s`;
}

export const seconds = (value) => ms(value * 1000);

/** Returns a text with a capital letter at its start. */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

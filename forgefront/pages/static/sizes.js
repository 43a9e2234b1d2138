// Sizes of files.

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];

/** "12 bytes", "3.4 kB" */
export function size(bytes) {
  let [number, unit] = [Number(bytes), 0];
  while (number >= 1000 && unit < UNITS.length - 1) [number, unit] = [number / 1000, unit + 1];
  return `${unit ? number.toFixed(1) : number} ${UNITS[unit]}`;
}

// The contents of files, as text fields have them and as the service takes them.

/**
 * The text of a file: `text` with the line ends of a text field, whether those of the file are CR LF (`isWindows`), and whether they are
 * `mixed`, so that they are lost. Null if the file is not UTF-8, because saving it would change it.
 */
export function textOf(base64) {
  const bytes = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
  const plain = text.replace(/\r\n?/g, "\n");
  const isWindows = text.includes("\r\n");
  return { text: plain, isWindows, mixed: withLineEnds(plain, isWindows) !== text };
}

export const withLineEnds = (text, isWindows) => (isWindows ? text.replace(/\n/g, "\r\n") : text);

/** A file of this computer as base64. */
export function readFile(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error("The file cannot be read."));
    reader.readAsDataURL(file);
  });
}

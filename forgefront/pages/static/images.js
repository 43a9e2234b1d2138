// The kinds of files that browsers show as an image.

const TYPES = { png: "png", jpg: "jpeg", jpeg: "jpeg", gif: "gif", webp: "webp", bmp: "bmp", ico: "x-icon", svg: "svg+xml" };

/** The media type of an image by the name of its file, such as "image/png", or undefined for other files. */
export function imageType(name) {
  const type = TYPES[name.split(".").at(-1).toLowerCase()];
  return type && `image/${type}`;
}

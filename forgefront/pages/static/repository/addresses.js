// Addresses of files. The ref is a parameter, because the names of branches and the paths of files both have slashes.

import { address } from "../address.js";

const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value);
  return given.length ? `?${given.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}` : "";
};

const at = (part) => (path, place, ref) => address(path, part, ...(place ? [place] : [])) + query({ ref });

export const fileAddress = at("files");
export const blameAddress = at("blame");
/** `text` is searched for in the files; without it, the page asks for one. */
export const searchAddress = (path, ref, text) => address(path, "search") + query({ q: text, ref });
export const historyAddress = at("history");
export const newFileAddress = at("new_file");
export const editFileAddress = at("edit_file");
export const removeFileAddress = at("remove_file");
export const contributorsAddress = (path, ref) => address(path, "contributors") + query({ ref });
export const compareAddress = (path, from, to) => address(path, "compare") + query({ from, to });
/** The address of a directory ends with a slash; "" is the root. */
export const folderAddress = (path, place, ref) => `${address(path, "files", ...(place ? [place] : []))}/${query({ ref })}`;

/** "src" of "src/main.py", "" of "main.py" */
export const folderOf = (place) => place.slice(0, Math.max(place.lastIndexOf("/"), 0));

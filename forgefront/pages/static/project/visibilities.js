// Who sees a project or a snippet, as options of a select.

export const VISIBILITIES = [["PRIVATE", "Private"], ["INTERNAL", "Internal"], ["PUBLIC", "Public"]];

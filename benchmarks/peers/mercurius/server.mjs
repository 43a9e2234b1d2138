// mercurius + graphql-jit: its loaders ask once for all objects of a level, through a pool of node-postgres. No caller is looked up.
// Run it from a folder with the packages of ../packages.json: `PEER_DATABASE_URL=… PORT=… node server.mjs`.
import Fastify from 'fastify'
import mercurius from 'mercurius'
import pg from 'pg'

const pool = new pg.Pool({ connectionString: process.env.PEER_DATABASE_URL, max: 20 })

const schema = `
  type User { databaseId: Int! username: String! name: String! state: String! }
  type Milestone { databaseId: Int! iid: Int! title: String! state: String! dueDate: String }
  type Issue {
    databaseId: Int! iid: Int! title: String! description: String state: String! createdAt: String! updatedAt: String!
    labels: [String!]! milestone: Milestone author: User! assignee: User
  }
  type IssueConnection { nodes: [Issue!]! }
  type Build { databaseId: Int! name: String! stage: String! status: String! startedAt: String finishedAt: String }
  type BuildConnection { nodes: [Build!]! }
  type Commit { oid: String! title: String! authorName: String! committedAt: String! builds(first: Int = 20): BuildConnection! }
  type MergeRequest {
    databaseId: Int! iid: Int! title: String! state: String! sourceBranch: String! targetBranch: String! createdAt: String!
    author: User! headCommit: Commit
  }
  type MergeRequestConnection { nodes: [MergeRequest!]! }
  type Project {
    issues(first: Int = 20): IssueConnection!
    issue(databaseId: Int!): Issue
    mergeRequests(first: Int = 20): MergeRequestConnection!
  }
  type Query { project(path: String!): Project }
`

const ISSUE = `id AS "databaseId", iid, title, description, state, created_at AS "createdAt", updated_at AS "updatedAt",
  author_id, assignee_id, milestone_id`

// A statement that has a name is planned once for each connection.
async function rows (name, text, values) {
  return (await pool.query({ name, text, values })).rows
}

const resolvers = {
  Query: {
    async project (_, { path }) {
      const [found] = await rows('project', 'SELECT id FROM projects WHERE id = $1', [Number(path)])
      return found ?? null
    }
  },
  Project: {
    async issues ({ id }, { first }) {
      const text = `SELECT ${ISSUE} FROM issues WHERE project_id = $1 ORDER BY created_at DESC, issues.id DESC LIMIT ${Number(first)}`
      return { nodes: await rows(`issues ${first}`, text, [id]) }
    },
    async issue ({ id }, { databaseId }) {
      const [found] = await rows('issue', `SELECT ${ISSUE} FROM issues WHERE project_id = $1 AND id = $2`, [id, databaseId])
      return found ?? null
    },
    async mergeRequests ({ id }, { first }) {
      const text = `SELECT id AS "databaseId", project_id, iid, title, state, source_branch AS "sourceBranch",
        target_branch AS "targetBranch", created_at AS "createdAt", author_id, head_oid
        FROM merge_requests WHERE project_id = $1 ORDER BY created_at DESC, merge_requests.id DESC LIMIT ${Number(first)}`
      return { nodes: await rows(`merge requests ${first}`, text, [id]) }
    }
  },
  Issue: instants('createdAt', 'updatedAt'),
  MergeRequest: instants('createdAt'),
  Commit: instants('committedAt'),
  Build: instants('startedAt', 'finishedAt')
}

function instants (...names) {
  return Object.fromEntries(names.map((name) => [name, (row) => row[name] === null ? null : row[name].toISOString()]))
}

async function byId (name, text, queries, key) {
  const ids = [...new Set(queries.map(({ obj }) => obj[key]).filter((id) => id !== null))]
  const found = new Map((ids.length ? await rows(name, text, [ids]) : []).map((row) => [row.databaseId, row]))
  return queries.map(({ obj }) => found.get(obj[key]) ?? null)
}

const USERS = 'SELECT id AS "databaseId", username, name, state FROM users WHERE id = ANY($1::int[])'
const MILESTONES = `SELECT id AS "databaseId", iid, title, state, to_char(due_date, 'YYYY-MM-DD') AS "dueDate"
  FROM milestones WHERE id = ANY($1::int[])`
const LABELS = `SELECT k.issue_id, l.title FROM issue_labels k JOIN labels l ON l.id = k.label_id
  WHERE k.issue_id = ANY($1::int[]) ORDER BY l.title`
const COMMITS = `SELECT c.project_id, c.oid, c.title, c.author_name AS "authorName", c.committed_at AS "committedAt"
  FROM unnest($1::int[], $2::text[]) AS head (project_id, oid) JOIN commits c USING (project_id, oid)`

const loaders = {
  Issue: {
    author: (queries) => byId('users', USERS, queries, 'author_id'),
    assignee: (queries) => byId('users', USERS, queries, 'assignee_id'),
    milestone: (queries) => byId('milestones', MILESTONES, queries, 'milestone_id'),
    async labels (queries) {
      const titles = new Map(queries.map(({ obj }) => [obj.databaseId, []]))
      for (const row of await rows('labels', LABELS, [[...titles.keys()]])) titles.get(row.issue_id).push(row.title)
      return queries.map(({ obj }) => titles.get(obj.databaseId))
    }
  },
  MergeRequest: {
    author: (queries) => byId('users', USERS, queries, 'author_id'),
    async headCommit (queries) {
      const heads = queries.map(({ obj }) => obj)
      const found = await rows('commits', COMMITS, [heads.map((row) => row.project_id), heads.map((row) => row.head_oid)])
      const commits = new Map(found.map((row) => [`${row.project_id} ${row.oid}`, row]))
      return heads.map((row) => commits.get(`${row.project_id} ${row.head_oid}`) ?? null)
    }
  },
  Commit: {
    async builds (queries) {
      const commits = queries.map(({ obj }) => obj)
      const first = Math.max(...queries.map(({ params }) => params.first))
      const text = `SELECT b.* FROM unnest($1::int[], $2::text[]) AS head (project_id, oid) CROSS JOIN LATERAL (
        SELECT b.project_id, b.sha, b.id AS "databaseId", b.name, b.stage, b.status, b.started_at AS "startedAt",
          b.finished_at AS "finishedAt" FROM builds b
        WHERE b.project_id = head.project_id AND b.sha = head.oid AND b.current_id IS NULL ORDER BY b.id DESC LIMIT ${Number(first)}) b`
      const found = new Map()
      for (const row of await rows(`builds ${first}`, text, [commits.map((row) => row.project_id), commits.map((row) => row.oid)])) {
        const key = `${row.project_id} ${row.sha}`
        if (!found.has(key)) found.set(key, [])
        found.get(key).push(row)
      }
      return queries.map(({ obj, params }) => ({ nodes: (found.get(`${obj.project_id} ${obj.oid}`) ?? []).slice(0, params.first) }))
    }
  }
}

const app = Fastify()
app.register(mercurius, { schema, resolvers, loaders, jit: 1 })
await app.listen({ host: '127.0.0.1', port: Number(process.env.PORT) })

// PostGraphile 5 on the service's own tables, with its newest preset. What no foreign key says is told by smart tags. No caller is looked up.
// Run it from a folder with the packages of ../packages.json: `PEER_DATABASE_URL=… PORT=… node server.mjs`.
import { createServer } from 'node:http'
import { postgraphile } from 'postgraphile'
import { makePgService } from 'postgraphile/adaptors/pg'
import { grafserv } from 'postgraphile/grafserv/node'
import { PostGraphileAmberPreset } from 'postgraphile/presets/amber'
import { jsonPgSmartTags } from 'postgraphile/utils'

const relations = jsonPgSmartTags({
  version: 1,
  config: {
    class: {
      merge_requests: { tags: { foreignKey: '(project_id, head_oid) references commits (project_id, oid)|@fieldName headCommit' } },
      builds: { tags: { foreignKey: '(project_id, sha) references commits (project_id, oid)|@foreignFieldName builds' } }
    }
  }
})

const preset = {
  extends: [PostGraphileAmberPreset],
  plugins: [relations],
  // Columns without an index of their own can be asked for too.
  disablePlugins: ['PgIndexBehaviorsPlugin'],
  pgServices: [makePgService({ connectionString: process.env.PEER_DATABASE_URL, schemas: ['public'], poolConfig: { max: 20 } })],
  grafserv: { graphqlPath: '/graphql', graphiql: false, watch: false },
  grafast: { explain: false }
}

const server = createServer()
server.on('error', (error) => { throw error })
const serving = postgraphile(preset).createServ(grafserv)
await serving.addTo(server)
server.listen(Number(process.env.PORT), '127.0.0.1')

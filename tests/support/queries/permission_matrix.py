"""The permission matrix as data: the result of each operation for each kind of caller, on a private project by default.

    AN anonymous   OU outsider   GU guest   RE reporter   DE developer   MA master   OW owner   AD administrator   BL blocked
    PU the outsider again, on a public project (where the operation is about one)

A row of v3 has statuses, a mutation has `ok` or the code of its error. A test fails for an operation without a row.
"""

ROLES = ("AN", "OU", "GU", "RE", "DE", "MA", "OW", "AD", "BL", "PU")

V3 = """
                                                              AN  OU  GU  RE  DE  MA  OW  AD  BL  PU
GET /projects/:id/builds                                      401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/commits/:sha/builds              401 404 403 200 200 200 200 200 401 200
GET /projects/:id/builds/:build_id                            401 404 403 200 200 200 200 200 401 200
GET /projects/:id/builds/:build_id/artifacts                  401 404 403 200 200 200 200 200 401 200
GET /projects/:id/builds/:build_id/trace                      401 404 403 200 200 200 200 200 401 200
POST /projects/:id/builds/:build_id/cancel                    401 404 403 403 201 201 201 201 401 403
POST /projects/:id/builds/:build_id/retry                     401 404 403 403 201 201 201 201 401 403
POST /projects/:id/builds/:build_id/erase                     401 404 403 403 201 201 201 201 401 403
GET /runners                                                  401 200 200 200 200 200 200 200 401 200
GET /runners/all                                              401 403 403 403 403 403 403 200 401 403
GET /runners/:id                                              401 403 403 403 403 200 200 200 401 403
PUT /runners/:id                                              401 403 403 403 403 200 200 200 401 403
DELETE /runners/:id                                           401 403 403 403 403 200 200 200 401 403
GET /projects/:id/runners                                     401 404 403 403 403 200 200 200 401 403
POST /projects/:id/runners                                    401 404 403 403 403 201 201 201 401 403
DELETE /projects/:id/runners/:runner_id                       401 404 403 403 403 200 200 200 401 403
POST /projects/:id/trigger/builds                             201 201 201 201 201 201 201 201 201 201
GET /projects/:id/triggers                                    401 404 403 403 403 200 200 200 401 403
GET /projects/:id/triggers/:token                             401 404 403 403 403 200 200 200 401 403
POST /projects/:id/triggers                                   401 404 403 403 403 201 201 201 401 403
DELETE /projects/:id/triggers/:token                          401 404 403 403 403 200 200 200 401 403
GET /projects/:id/variables                                   401 404 403 403 403 200 200 200 401 403
GET /projects/:id/variables/:key                              401 404 403 403 403 200 200 200 401 403
POST /projects/:id/variables                                  401 404 403 403 403 201 201 201 401 403
PUT /projects/:id/variables/:key                              401 404 403 403 403 200 200 200 401 403
DELETE /projects/:id/variables/:key                           401 404 403 403 403 200 200 200 401 403
GET /issues                                                   401 200 200 200 200 200 200 200 401 200
GET /projects/:id/issues                                      401 404 200 200 200 200 200 200 401 200
GET /projects/:id/issues/:issue_id                            401 404 200 200 200 200 200 200 401 200
POST /projects/:id/issues                                     401 404 200 200 200 200 200 200 401 200
PUT /projects/:id/issues/:issue_id                            401 404 403 200 200 200 200 200 401 403
DELETE /projects/:id/issues/:issue_id                         401 405 405 405 405 405 405 405 401 405
GET /projects/:id/repository/commits                          401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/commits/:sha                     401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/commits/:sha/diff                401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/commits/:sha/comments            401 404 403 200 200 200 200 200 401 200
POST /projects/:id/repository/commits/:sha/comments           401 404 403 201 201 201 201 201 401 201
GET /projects/:id/repository/commits/:sha/statuses            401 404 403 200 200 200 200 200 401 200
POST /projects/:id/statuses/:sha                              401 404 403 403 201 201 201 201 401 403
GET /projects/:id/repository/branches                         401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/branches/:branch                 401 404 403 200 200 200 200 200 401 200
PUT /projects/:id/repository/branches/:branch/protect         401 404 403 403 403 200 200 200 401 403
PUT /projects/:id/repository/branches/:branch/unprotect       401 404 403 403 403 200 200 200 401 403
POST /projects/:id/repository/branches                        401 404 403 403 201 201 201 201 401 403
DELETE /projects/:id/repository/branches/:branch              401 404 403 403 200 200 200 200 401 403
GET /projects/:id/repository/files                            401 404 403 200 200 200 200 200 401 200
POST /projects/:id/repository/files                           401 404 403 403 201 201 201 201 401 403
PUT /projects/:id/repository/files                            401 404 403 403 200 200 200 200 401 403
DELETE /projects/:id/repository/files                         401 404 403 403 200 200 200 200 401 403
GET /projects/:id/repository/tree                             401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/blobs/:sha                       401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/commits/:sha/blob                401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/raw_blobs/:sha                   401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/archive                          401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/compare                          401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/contributors                     401 404 403 200 200 200 200 200 401 200
GET /projects/:id/repository/tags                             401 404 403 200 200 200 200 200 401 200
POST /projects/:id/repository/tags                            401 404 403 403 201 201 201 201 401 403
DELETE /projects/:id/repository/tags/:tag_name                401 404 403 403 200 200 200 200 401 403
POST /projects/:id/repository/tags/:tag_name/release          401 404 403 403 201 201 201 201 401 403
PUT /projects/:id/repository/tags/:tag_name/release           401 404 403 403 200 200 200 200 401 403
GET /application/settings                                     401 403 403 403 403 403 403 200 401 403
PUT /application/settings                                     401 403 403 403 403 403 403 200 401 403
GET /projects/:id/labels                                      401 404 200 200 200 200 200 200 401 200
POST /projects/:id/labels                                     401 404 403 200 200 200 200 200 401 403
DELETE /projects/:id/labels                                   401 404 403 200 200 200 200 200 401 403
PUT /projects/:id/labels                                      401 404 403 200 200 200 200 200 401 403
GET /projects/:id/issues/:issue_id/notes                      401 404 200 200 200 200 200 200 401 200
GET /projects/:id/issues/:issue_id/notes/:note_id             401 404 200 200 200 200 200 200 401 200
POST /projects/:id/issues/:issue_id/notes                     401 404 201 201 201 201 201 201 401 201
PUT /projects/:id/issues/:issue_id/notes/:note_id             401 404 403 403 403 200 200 200 401 403
GET /projects/:id/snippets/:snippet_id/notes                  401 404 200 200 200 200 200 200 401 200
GET /projects/:id/snippets/:snippet_id/notes/:note_id         401 404 200 200 200 200 200 200 401 200
POST /projects/:id/snippets/:snippet_id/notes                 401 404 201 201 201 201 201 201 401 201
PUT /projects/:id/snippets/:snippet_id/notes/:note_id         401 404 403 403 403 200 200 200 401 403
GET /projects/:id/merge_requests/:merge_request_id/notes      401 404 200 200 200 200 200 200 401 200
GET /projects/:id/merge_requests/:merge_request_id/notes/:note_id 401 404 200 200 200 200 200 200 401 200
POST /projects/:id/merge_requests/:merge_request_id/notes     401 404 201 201 201 201 201 201 401 201
PUT /projects/:id/merge_requests/:merge_request_id/notes/:note_id 401 404 403 403 403 200 200 200 401 403
POST /projects/:id/uploads                                    401 404 201 201 201 201 201 201 401 201
GET /projects/:id/hooks                                       401 404 403 403 403 200 200 200 401 403
GET /projects/:id/hooks/:hook_id                              401 404 403 403 403 200 200 200 401 403
POST /projects/:id/hooks                                      401 404 403 403 403 201 201 201 401 403
PUT /projects/:id/hooks/:hook_id                              401 404 403 403 403 200 200 200 401 403
DELETE /projects/:id/hooks/:hook_id                           401 404 403 403 403 200 200 200 401 403
GET /projects/:id/keys                                        401 404 403 403 403 200 200 200 401 403
GET /projects/:id/keys/:key_id                                401 404 403 403 403 200 200 200 401 403
POST /projects/:id/keys                                       401 404 403 403 403 201 201 201 401 403
DELETE /projects/:id/keys/:key_id                             401 404 403 403 403 200 200 200 401 403
GET /projects/:id/members                                     401 404 200 200 200 200 200 200 401 200
GET /projects/:id/members/:user_id                            401 404 200 200 200 200 200 200 401 200
POST /projects/:id/members                                    401 404 403 403 403 201 201 201 401 403
PUT /projects/:id/members/:user_id                            401 404 403 403 403 200 200 200 401 403
DELETE /projects/:id/members/:user_id                         401 404 403 403 403 200 200 200 401 403
GET /projects/:id/snippets                                    401 404 200 200 200 200 200 200 401 200
GET /projects/:id/snippets/:snippet_id                        401 404 200 200 200 200 200 200 401 200
GET /projects/:id/snippets/:snippet_id/raw                    401 404 200 200 200 200 200 200 401 200
POST /projects/:id/snippets                                   401 404 403 201 201 201 201 201 401 403
PUT /projects/:id/snippets/:snippet_id                        401 404 403 403 403 200 200 200 401 403
DELETE /projects/:id/snippets/:snippet_id                     401 404 403 403 403 200 200 200 401 403
GET /projects/:id/merge_requests/:merge_request_id/comments   401 404 200 200 200 200 200 200 401 200
POST /projects/:id/merge_requests/:merge_request_id/comments  401 404 201 201 201 201 201 201 401 201
GET /projects/:id/milestones                                  401 404 200 200 200 200 200 200 401 200
GET /projects/:id/milestones/:milestone_id                    401 404 200 200 200 200 200 200 401 200
POST /projects/:id/milestones                                 401 404 403 403 403 201 201 201 401 403
PUT /projects/:id/milestones/:milestone_id                    401 404 403 403 403 200 200 200 401 403
GET /projects/:id/milestones/:milestone_id/issues             401 404 200 200 200 200 200 200 401 200
GET /projects/:id/merge_requests                              401 404 200 200 200 200 200 200 401 200
GET /projects/:id/merge_requests/:merge_request_id            401 404 200 200 200 200 200 200 401 200
GET /projects/:id/merge_requests/:merge_request_id/commits    401 404 200 200 200 200 200 200 401 200
GET /projects/:id/merge_requests/:merge_request_id/changes    401 404 200 200 200 200 200 200 401 200
POST /projects/:id/merge_requests                             401 404 403 403 200 200 200 200 401 403
PUT /projects/:id/merge_requests/:merge_request_id            401 404 403 403 403 200 200 200 401 403
PUT /projects/:id/merge_requests/:merge_request_id/merge      401 404 401 401 200 200 200 200 401 401
PUT /projects/:id/merge_requests/:merge_request_id/cancel_merge_when_build_succeeds 401 404 401 401 200 200 200 200 401 401
POST /projects/:id/merge_requests/:merge_request_id/cancel_merge_when_build_succeeds 401 404 401 401 201 201 201 201 401 401
GET /projects/:id/merge_requests/:merge_request_id/closes_issues 401 404 200 200 200 200 200 200 401 200
GET /hooks                                                    401 403 403 403 403 403 403 200 401 403
POST /hooks                                                   401 403 403 403 403 403 403 201 401 403
GET /hooks/:id                                                401 403 403 403 403 403 403 200 401 403
DELETE /hooks/:id                                             401 403 403 403 403 403 403 200 401 403
GET /users                                                    401 200 200 200 200 200 200 200 401 200
GET /users/:id                                                401 200 200 200 200 200 200 200 401 200
POST /users                                                   401 403 403 403 403 403 403 201 401 403
PUT /users/:id                                                401 403 403 403 403 403 403 200 401 403
DELETE /users/:id                                             401 403 403 403 403 403 403 200 401 403
GET /user                                                     401 200 200 200 200 200 200 200 401 200
GET /user/keys                                                401 200 200 200 200 200 200 200 401 200
GET /users/:uid/keys                                          401 403 403 403 403 403 403 200 401 403
GET /user/keys/:id                                            401 404 404 404 404 404 404 404 401 404
POST /user/keys                                               401 201 201 201 201 201 201 201 401 201
POST /users/:id/keys                                          401 403 403 403 403 403 403 201 401 403
DELETE /user/keys/:id                                         401 200 200 200 200 200 200 200 401 200
DELETE /users/:uid/keys/:id                                   401 403 403 403 403 403 403 200 401 403
GET /keys/:id                                                 401 403 403 403 403 403 403 200 401 403
GET /user/emails                                              401 200 200 200 200 200 200 200 401 200
GET /users/:uid/emails                                        401 403 403 403 403 403 403 200 401 403
GET /user/emails/:id                                          401 404 404 404 404 404 404 404 401 404
POST /user/emails                                             401 201 201 201 201 201 201 201 401 201
POST /users/:id/emails                                        401 403 403 403 403 403 403 201 401 403
DELETE /user/emails/:id                                       401 200 200 200 200 200 200 200 401 200
DELETE /users/:uid/emails/:id                                 401 403 403 403 403 403 403 200 401 403
PUT /users/:uid/block                                         401 403 403 403 403 403 403 200 401 403
PUT /users/:uid/unblock                                       401 403 403 403 403 403 403 200 401 403
GET /groups                                                   401 200 200 200 200 200 200 200 401 200
GET /groups/:id                                               401 404 200 200 200 200 200 200 401 200
POST /groups                                                  401 201 201 201 201 201 201 201 401 201
DELETE /groups/:id                                            401 404 403 403 403 403 200 200 401 403
GET /groups/:id/projects                                      401 404 200 200 200 200 200 200 401 200
POST /groups/:id/projects/:project_id                         401 403 403 403 403 403 403 201 401 403
GET /groups/:id/members                                       401 404 200 200 200 200 200 200 401 200
POST /groups/:id/members                                      401 404 403 403 403 403 201 201 401 403
PUT /groups/:id/members/:user_id                              401 404 403 403 403 403 200 200 401 403
DELETE /groups/:id/members/:user_id                           401 404 403 403 403 403 200 200 401 403
GET /projects                                                 401 200 200 200 200 200 200 200 401 200
GET /projects/owned                                           401 200 200 200 200 200 200 200 401 200
GET /projects/starred                                         401 200 200 200 200 200 200 200 401 200
GET /projects/all                                             401 403 403 403 403 403 403 200 401 403
GET /projects/search/:query                                   401 200 200 200 200 200 200 200 401 200
GET /projects/:id                                             401 404 200 200 200 200 200 200 401 200
GET /projects/:id/events                                      401 404 200 200 200 200 200 200 401 200
POST /projects                                                401 201 201 201 201 201 201 201 401 201
POST /projects/user/:user_id                                  401 403 403 403 403 403 403 201 401 403
POST /projects/fork/:id                                       401 404 403 201 201 201 201 201 401 201
PUT /projects/:id                                             401 404 403 403 403 200 200 200 401 403
DELETE /projects/:id                                          401 404 403 403 403 403 200 200 401 403
POST /projects/:id/fork/:forked_from_id                       401 403 403 403 403 403 403 201 401 403
DELETE /projects/:id/fork                                     401 404 403 403 403 403 200 200 401 403
GET /projects/:id/users                                       401 404 200 200 200 200 200 200 401 200
GET /namespaces                                               401 200 200 200 200 200 200 200 401 200
"""
"""Another user's key or e-mail address in `/user/…` is not found, and deleting it returns 200 without an effect."""

MUTATIONS = """
                     AN   OU        GU        RE        DE        MA        OW        AD BL   PU
createUser           401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
updateUser           401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
deleteUser           401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
blockUser            401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
unblockUser          401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
resetPrivateToken    401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
updateProfile        401  ok        ok        ok        ok        ok        ok        ok 401  ok
changePassword       401  ok        ok        ok        ok        ok        ok        ok 401  ok
createAccessToken    401  ok        ok        ok        ok        ok        ok        ok 401  ok
revokeAccessToken    401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
addSshKey            401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
deleteSshKey         401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
addEmail             401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
deleteEmail          401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
createGroup          401  ok        ok        ok        ok        ok        ok        ok 401  ok
updateGroup          401  not_found forbidden forbidden forbidden forbidden ok        ok 401  forbidden
deleteGroup          401  not_found forbidden forbidden forbidden forbidden ok        ok 401  forbidden
addGroupMember       401  not_found forbidden forbidden forbidden forbidden ok        ok 401  forbidden
updateGroupMember    401  not_found forbidden forbidden forbidden forbidden ok        ok 401  forbidden
removeGroupMember    401  not_found forbidden forbidden forbidden forbidden ok        ok 401  forbidden
createProject        401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
forkProject          401  not_found forbidden ok        ok        ok        ok        ok 401  ok
updateProject        401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
deleteProject        401  not_found forbidden forbidden forbidden forbidden ok        ok 401  forbidden
transferProject      401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
addProjectMember     401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
updateProjectMember  401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
removeProjectMember  401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
createIssue          401  not_found ok        ok        ok        ok        ok        ok 401  ok
updateIssue          401  not_found forbidden ok        ok        ok        ok        ok 401  forbidden
closeIssue           401  not_found forbidden ok        ok        ok        ok        ok 401  forbidden
reopenIssue          401  not_found forbidden ok        ok        ok        ok        ok 401  forbidden
createMergeRequest   401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
updateMergeRequest   401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
acceptMergeRequest   401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
cancelMergeWhenBuildSucceeds 401 not_found forbidden forbidden ok ok        ok        ok 401  forbidden
markFileViewed       401  not_found ok        ok        ok        ok        ok        ok 401  ok
markMergeRequestVisited 401 not_found ok     ok        ok        ok        ok        ok 401  ok
createThread         401  not_found ok        ok        ok        ok        ok        ok 401  ok
replyToThread        401  not_found ok        ok        ok        ok        ok        ok 401  ok
resolveThread        401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
unresolveThread      401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
applySuggestion      401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
createLabel          401  not_found forbidden ok        ok        ok        ok        ok 401  forbidden
updateLabel          401  not_found forbidden ok        ok        ok        ok        ok 401  forbidden
deleteLabel          401  not_found forbidden ok        ok        ok        ok        ok 401  forbidden
createMilestone      401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
updateMilestone      401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
deleteMilestone      401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
createNote           401  not_found ok        ok        ok        ok        ok        ok 401  ok
updateNote           401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
createSnippet        401  not_found forbidden ok        ok        ok        ok        ok 401  forbidden
updateSnippet        401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
deleteSnippet        401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
createUpload         401  not_found ok        ok        ok        ok        ok        ok 401  ok
createCommitComment  401  not_found forbidden ok        ok        ok        ok        ok 401  ok
createBuild          401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
updateBuild          401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
cancelBuild          401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
retryBuild           401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
eraseBuild           401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
stopEnvironment      401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
playBuild            401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
keepArtifacts        401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
appendBuildTrace     401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
createArtifactUpload 401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
createCommitStatus   401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
updateSettings       401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
createRunner         401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
updateRunner         401  forbidden forbidden forbidden forbidden ok        ok        ok 401  forbidden
deleteRunner         401  forbidden forbidden forbidden forbidden ok        ok        ok 401  forbidden
assignRunner         401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
unassignRunner       401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
claimBuild           401  forbidden forbidden forbidden forbidden forbidden forbidden forbidden 401 forbidden
createTrigger        401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
deleteTrigger        401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
triggerBuilds        ok   ok        ok        ok        ok        ok        ok        ok ok   ok
createVariable       401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
updateVariable       401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
deleteVariable       401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
resetRunnersToken    401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
registerRunner       ok   ok        ok        ok        ok        ok        ok        ok ok   ok
unregisterRunner     ok   ok        ok        ok        ok        ok        ok        ok ok   ok
deleteArtifact       401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
signUp               ok   ok        ok        ok        ok        ok        ok        ok ok   ok
createHook           401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
updateHook           401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
testHook             401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
deleteHook           401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
redeliverHook        401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
addDeployKey         401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
deleteDeployKey      401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
createProjectHook    401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
updateProjectHook    401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
testProjectHook      401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
deleteProjectHook    401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
importMergeRequests  401  not_found forbidden forbidden forbidden forbidden ok        ok 401  forbidden
createBranch         401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
deleteBranch         401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
protectBranch        401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
unprotectBranch      401  not_found forbidden forbidden forbidden ok        ok        ok 401  forbidden
createCommit         401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
createTag            401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
deleteTag            401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
createRelease        401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
updateRelease        401  not_found forbidden forbidden ok        ok        ok        ok 401  forbidden
archiveProject       401  not_found forbidden forbidden forbidden forbidden ok        ok 401  forbidden
unarchiveProject     401  not_found forbidden forbidden forbidden forbidden ok        ok 401  forbidden
linkFork             401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
unlinkFork           401  not_found forbidden forbidden forbidden forbidden ok        ok 401  forbidden
starProject          401  not_found ok        ok        ok        ok        ok        ok 401  ok
unstarProject        401  not_found ok        ok        ok        ok        ok        ok 401  ok
beginImport          401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
finishImport         401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
setImportMarks       401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importSettings       401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importUsers          401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importEmails         401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importSshKeys        401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importGroups         401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importGroupMembers   401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importProjects       401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importProjectMembers 401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importProjectStars   401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importLabels         401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importMilestones     401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importHooks          401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importDeployKeys     401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importVariables      401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importTriggers       401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importProtectedBranches 401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importSnippets       401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importIssues         401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importMergeRequestBatch 401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importNotes          401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importCommitComments 401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importCommitStatuses 401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importBuilds         401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importReleases       401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
importRunners        401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
signIn               ok   ok        ok        ok        ok        ok        ok        ok ok   ok
createSignInLink     401  forbidden forbidden forbidden forbidden forbidden forbidden ok 401  forbidden
signInByLink         ok   ok        ok        ok        ok        ok        ok        ok ok   ok
finishOpenIdSignIn   not_found not_found not_found not_found not_found not_found not_found not_found not_found not_found
"""
"""The users of `updateUser` … `deleteEmail` are other users. `401` is UNAUTHENTICATED. Anybody who knows a password may sign in, and
anybody may create an account."""

ANONYMOUS_V3_CALLS = {"POST /session"}
"""Calls that need no credential, so that all callers are equal."""


def parse_matrix(table: str) -> dict[str, dict[str, str]]:
    """The operation → role → its result."""
    found = {}
    for line in table.strip().splitlines()[1:]:
        words = line.split()
        found[" ".join(words[: -len(ROLES)])] = dict(zip(ROLES, words[-len(ROLES) :], strict=True))
    return found

"""`forgefront shadow`: a proxy in front of one server, which compares its answers with those of another.

    clients ──> proxy/ ──> the server that answers (the old one; with --switch the new one)
                  │
                  └─ exchange queue ──> comparison/ ──> the shadow server

`proxy/` is one process with an event loop that only moves bytes. It hands a copy of each exchange to a second process over a socket whose
buffer is bounded: what does not fit is counted and dropped. `comparison/` sends the copies to the shadow server, compares the answers, and
serves the status page. If it is slow or dies, clients see nothing of it.
"""

from forgefront import process_setup as process_setup

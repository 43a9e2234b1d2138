"""What is indexed of git repositories: branches, commits, their histories."""

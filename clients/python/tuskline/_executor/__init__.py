"""The executor: the process that runs lambdas, at the other end of the controller's socket. Standard library only."""

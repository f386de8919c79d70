//! The command line of kube-controller-manager, read by its own rules.

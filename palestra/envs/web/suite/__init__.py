"""Sites with generated content and the tasks on them: applications, task templates, experts and grading."""

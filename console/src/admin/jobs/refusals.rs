//! Builds the refusals of work on jobs, with the same wording on all routes.

use tidegate_web::Problem;

pub(super) fn no_such_job() -> Problem {
    Problem::not_found("There is no such job.")
}

pub(super) fn not_your_claim() -> Problem {
    Problem::conflict(
        "The claim is not yours, or has ended: send the `reviewer` and the `epoch` of the claim.",
    )
}

pub(super) fn already_decided() -> Problem {
    Problem::conflict("The job is decided or closed already, or moved to another class.")
}

//! Rejects requests of the wrong shape. The readable items are validated too, so the client receives all faults in one
//! response.

use tidegate_catalog::Compiled;
use tidegate_schemas::{
    validation_error::{Pointer, ValidationErrors},
    wire::{InvalidRequest, Part, RequestRejection},
};
use tidegate_web::Problem;

use crate::{Api, admission::ReceivedRequest, config};

impl Api {
    pub(crate) async fn rejection_problem(
        &self,
        request: &ReceivedRequest,
        rejection: RequestRejection,
    ) -> Problem {
        let misshapen = match rejection {
            RequestRejection::Text(faults) => return faults.into(),
            RequestRejection::Shape(misshapen) => misshapen,
        };
        let has_all_types =
            |config: &Compiled| misshapen.parts().iter().all(|part| has_part_type(config, part));
        let Ok(config) = self.load_config(&request.org, has_all_types).await else {
            // The shape is wrong in any case, so the client receives these faults instead of the outage.
            return misshapen.with_part_errors(ValidationErrors::default()).into();
        };
        let collect_faults = move || {
            let part_faults = check_parts(&config, &misshapen);
            misshapen.with_part_errors(part_faults)
        };
        match self.offload_if_large(request.bytes().len(), collect_faults).await {
            Ok(faults) => faults.into(),
            Err(problem) => problem,
        }
    }
}

fn has_part_type(config: &Compiled, part: &Part) -> bool {
    config::has_item_type(config, &part.type_id, part.type_version.as_deref())
}

fn check_parts(config: &Compiled, misshapen: &InvalidRequest) -> ValidationErrors {
    let (root, mut faults) = (misshapen.root(), ValidationErrors::default());
    for Part { at, type_id, type_version, mode, node, data } in misshapen.parts() {
        let (pointer, type_reference) = (Pointer::Text(at), (type_id, type_version.as_deref()));
        let item_type =
            config::check_item_type(config, type_reference, Some(root.node_at(*node)), &pointer, &mut faults);
        if let (Some(item_type), Some(data)) = (item_type, data) {
            item_type.check_scanned(root.node_at(*data), *mode, &pointer.key("data"), &mut faults);
        }
    }
    faults
}

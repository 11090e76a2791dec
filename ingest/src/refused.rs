//! A request of the wrong shape: what can be read of it is looked at, too, so that its sender hears everything at once.
//!
//! It takes nothing of such a request.

use tidegate_catalog::Compiled;
use tidegate_schemas::{
    validation_error::{Pointer, ValidationErrors},
    wire::{Misshapen, Part, Refused},
};
use tidegate_web::Problem;

use crate::{Api, admission::Received, config};

impl Api {
    pub(crate) async fn refused(&self, received: &Received, refused: Refused) -> Problem {
        let misshapen = match refused {
            Refused::Text(faults) => return faults.into(),
            Refused::Shape(misshapen) => misshapen,
        };
        let known = |config: &Compiled| misshapen.parts().iter().all(|part| is_known(config, part));
        let Ok(config) = self.config(&received.org, known).await else {
            // Its shape is wrong, whatever cannot be loaded now.
            return misshapen.with(ValidationErrors::default()).into();
        };
        let all = move || {
            let of_parts = check(&config, &misshapen);
            misshapen.with(of_parts)
        };
        match self.work(received.bytes().len(), all).await {
            Ok(faults) => faults.into(),
            Err(problem) => problem,
        }
    }
}

fn is_known(config: &Compiled, part: &Part) -> bool {
    config::knows(config, &part.type_id, part.type_version.as_deref())
}

fn check(config: &Compiled, misshapen: &Misshapen) -> ValidationErrors {
    let (root, mut faults) = (misshapen.root(), ValidationErrors::default());
    for Part { at, type_id, type_version, mode, node, data } in misshapen.parts() {
        let (at, named) = (Pointer::Text(at), (type_id, type_version.as_deref()));
        let item_type = config::item_type(config, named, Some(root.other(*node)), &at, &mut faults);
        if let (Some(item_type), Some(data)) = (item_type, data) {
            item_type.judge(root.other(*data), *mode, &at.key("data"), &mut faults);
        }
    }
    faults
}

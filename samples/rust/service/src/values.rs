//! Tensors as clients write them: {"dims": [2, 4], "values": [...]}, row by row. A null is NaN.
use crate::failure::{excerpt, Failure, Result};
use crate::json;
use epl::{DType, Engine, Info, Tensor};
use serde::Serialize;
use serde_json::Map;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub struct Value {
    dims: Vec<i64>,
    values: Vec<Option<f64>>,
}

const MOST: i64 = 16 << 20;

/// What a client asks to predict from: {"inputs": {...}}.
pub fn asked(given: &Map<String, serde_json::Value>) -> Result<BTreeMap<String, Value>> {
    json::only(given, &["inputs"])?;
    let value = |(name, one): (&String, &serde_json::Value)| {
        let one = json::object(&excerpt(name), one)?;
        json::only(&one, &["dims", "values"])?;
        let dims = json::list(&one, "dims", serde_json::Value::as_i64)?;
        let values =
            json::list(&one, "values", |one| one.is_null().then_some(None).or_else(|| one.as_f64().map(Some)))?;
        Ok((name.clone(), Value { dims, values }))
    };
    json::objects(given, "inputs")?.iter().map(value).collect()
}

/// The inputs of a prediction, in the plan's order.
pub fn tensors(engine: &Engine, inputs: &[Info], given: &BTreeMap<String, Value>) -> Result<Vec<Tensor<'static>>> {
    if let Some(name) = given.keys().find(|name| inputs.iter().all(|info| info.name != **name)) {
        return Err(Failure::wrong(format!("the model has no input {:?}", excerpt(name))));
    }
    let tensor = |info: &Info| {
        let value = given.get(&info.name);
        let value = value.ok_or_else(|| Failure::wrong(format!("input {:?} is missing", info.name)))?;
        tensor_of(engine, info, value)
            .map_err(|error| Failure { message: format!("input {:?}: {}", info.name, error.message), ..error })
    };
    inputs.iter().map(tensor).collect()
}

fn tensor_of(engine: &Engine, info: &Info, value: &Value) -> Result<Tensor<'static>> {
    let dims = &value.dims;
    if dims.iter().any(|one| !(0..=MOST).contains(one)) {
        return Err(Failure::wrong(format!("there are no dims {}", excerpt(&format!("{dims:?}")))));
    }
    let elements = dims.iter().fold(1, |all: i64, one| (all * one).min(MOST));
    let count = value.values.len();
    if elements != count as i64 {
        let dims = excerpt(&format!("{dims:?}"));
        let text = format!("dims {dims} have {elements} elements, and there are {count} values");
        return Err(Failure::wrong(text));
    }
    let values = value.values.iter().map(|one| one.unwrap_or(f64::NAN));
    Ok(match info.dtype {
        DType::F32 => Tensor::new(engine, &values.map(|one| one as f32).collect::<Vec<_>>(), dims)?,
        DType::F64 => Tensor::new(engine, &values.collect::<Vec<_>>(), dims)?,
        DType::I64 => Tensor::new(engine, &values.map(|one| one as i64).collect::<Vec<_>>(), dims)?,
        DType::I32 => Tensor::new(engine, &values.map(|one| one as i32).collect::<Vec<_>>(), dims)?,
        other => return Err(Failure::wrong(format!("inputs of type {} cannot be given as numbers", other.name()))),
    })
}

pub fn value_of(tensor: &Tensor<'_>) -> Result<Value> {
    let finite = |one: f64| Some(one).filter(|one| one.is_finite());
    let values = match tensor.dtype() {
        DType::F32 => tensor.view::<f32>()?.iter().map(|one| finite(f64::from(*one))).collect(),
        DType::F64 => tensor.view::<f64>()?.iter().map(|one| finite(*one)).collect(),
        DType::I64 => tensor.view::<i64>()?.iter().map(|one| finite(*one as f64)).collect(),
        other => return Err(Failure::wrong(format!("outputs of type {} cannot be given as numbers", other.name()))),
    };
    Ok(Value { dims: tensor.dims(), values })
}

/** Trains neural networks inside the process. */
module ai.epl {
  exports ai.epl;
}

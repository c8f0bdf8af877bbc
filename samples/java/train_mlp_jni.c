/* The JNI side of TrainMlp.java: errors become exceptions, direct buffers are borrowed for a call. */
#include <epl.h>
#include <jni.h>

/* 1 if there was an error, which is now a pending exception; Java makes it, because ThrowNew takes no UTF-8. */
static int thrown(JNIEnv* env, epl_error* error) {
  if (error == NULL) return 0;
  size_t length = 0;
  const char* message = epl_error_message(error, &length);
  jclass type = (*env)->FindClass(env, "TrainMlp");
  jmethodID make = type ? (*env)->GetStaticMethodID(env, type, "exception", "(I[B)Ljava/lang/RuntimeException;") : NULL;
  jbyteArray bytes = make ? (*env)->NewByteArray(env, (jsize)length) : NULL;
  if (bytes != NULL) {
    (*env)->SetByteArrayRegion(env, bytes, 0, (jsize)length, (const jbyte*)message);
    jthrowable exception =
        (jthrowable)(*env)->CallStaticObjectMethod(env, type, make, (jint)epl_error_code(error), bytes);
    if (exception != NULL && !(*env)->ExceptionCheck(env)) (*env)->Throw(env, exception);
  } /* else Java has an exception of its own pending: it is out of memory */
  epl_error_destroy(error);
  return 1;
}

JNIEXPORT jlong JNICALL Java_TrainMlp_engineCreate(JNIEnv* env, jclass type) {
  epl_engine* engine = NULL;
  (void)type;
  thrown(env, epl_engine_create(NULL, &engine));
  return (jlong)(intptr_t)engine;
}

/* Children keep their parents alive: model, trainer and plan are let go as soon as the session is there. */
JNIEXPORT jlong JNICALL Java_TrainMlp_sessionCreate(JNIEnv* env, jclass type, jlong engine_handle,
                                                    jbyteArray path_bytes) {
  epl_engine* engine = (epl_engine*)(intptr_t)engine_handle;
  epl_model* model = NULL;
  epl_trainer* trainer = NULL;
  epl_plan* plan = NULL;
  epl_session* session = NULL;
  (void)type;
  const size_t length = (size_t)(*env)->GetArrayLength(env, path_bytes);
  jbyte* bytes = (*env)->GetByteArrayElements(env, path_bytes, NULL);
  if (bytes == NULL) return 0;
  const char* path = (const char*)bytes;
  (void)(thrown(env, epl_x_template_write(engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[4,16,2],\"seed\":1}"), path,
                                          length, NULL)) ||
         thrown(env, epl_model_load(engine, path, length, NULL, NULL, &model)) ||
         thrown(env, epl_trainer_create(engine, &trainer)) ||
         thrown(env, epl_trainer_set(trainer, EPL_STR("optimizer"), EPL_STR("adam"))) ||
         thrown(env, epl_trainer_set_number(trainer, EPL_STR("optimizer.lr"), 0.05)) ||
         thrown(env, epl_trainer_bind_symbol(trainer, EPL_STR("batch"), 4)) ||
         thrown(env, epl_plan_create(model, trainer, NULL, NULL, NULL, &plan)) ||
         thrown(env, epl_session_create(plan, NULL, NULL, &session)));
  epl_plan_destroy(plan);
  epl_trainer_destroy(trainer);
  epl_model_destroy(model);
  (*env)->ReleaseByteArrayElements(env, path_bytes, bytes, JNI_ABORT);
  return (jlong)(intptr_t)session;
}

JNIEXPORT jdouble JNICALL Java_TrainMlp_step(JNIEnv* env, jclass type, jlong engine_handle, jlong session, jobject x,
                                             jobject target, jlong cancel) {
  const int64_t x_dims[2] = {4, 4}, target_dims[1] = {4};
  epl_tensor* tensors[2] = {NULL, NULL};
  epl_metrics metrics = EPL_METRICS_INIT;
  epl_call_options options = EPL_CALL_OPTIONS_INIT;
  epl_engine* engine = (epl_engine*)(intptr_t)engine_handle;
  (void)type;
  options.cancel = (epl_cancel*)(intptr_t)cancel;
  /* The buffers are borrowed for this call, so they need not outlive it. */
  if (!thrown(env,
              epl_tensor_create_borrow(engine, EPL_DTYPE_F32, x_dims, 2, (*env)->GetDirectBufferAddress(env, x),
                                       (size_t)(*env)->GetDirectBufferCapacity(env, x), 0, NULL, NULL, &tensors[0])) &&
      !thrown(env, epl_tensor_create_borrow(
                       engine, EPL_DTYPE_I64, target_dims, 1, (*env)->GetDirectBufferAddress(env, target),
                       (size_t)(*env)->GetDirectBufferCapacity(env, target), 0, NULL, NULL, &tensors[1]))) {
    thrown(env,
           epl_session_step((epl_session*)(intptr_t)session, (const epl_tensor* const*)tensors, 2, &options, &metrics));
  }
  epl_tensor_destroy(tensors[0]);
  epl_tensor_destroy(tensors[1]);
  return metrics.loss;
}

JNIEXPORT jlong JNICALL Java_TrainMlp_cancelCreate(JNIEnv* env, jclass type, jlong engine) {
  epl_cancel* cancel = NULL;
  (void)type;
  thrown(env, epl_cancel_create((epl_engine*)(intptr_t)engine, &cancel));
  return (jlong)(intptr_t)cancel;
}

JNIEXPORT void JNICALL Java_TrainMlp_cancelTrigger(JNIEnv* env, jclass type, jlong cancel) {
  (void)env, (void)type;
  epl_cancel_trigger((epl_cancel*)(intptr_t)cancel);
}

JNIEXPORT void JNICALL Java_TrainMlp_destroy(JNIEnv* env, jclass type, jlong engine, jlong session, jlong cancel) {
  (void)env, (void)type;
  epl_engine_destroy((epl_engine*)(intptr_t)engine);
  epl_session_destroy((epl_session*)(intptr_t)session);
  epl_cancel_destroy((epl_cancel*)(intptr_t)cancel);
}

JNIEXPORT jlong JNICALL Java_TrainMlp_liveHandles(JNIEnv* env, jclass type) {
  (void)env, (void)type;
  return epl_live_handles();
}

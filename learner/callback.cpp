#include "tern/learner/callback.h"

#include <array>
#include <typeinfo>

#include <c10/util/Type.h>

namespace tern {

std::string Callback::name() const {
  const std::string name = c10::demangle(typeid(*this).name());
  const size_t scope = name.rfind("::", name.find('<'));
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

void CallbackHandle::operator()(Event event, Learner& learn) const {
  static constexpr std::array<void (Callback::*)(Learner&), kEventCount>
      kMethods = {
          &Callback::on_train_begin,
          &Callback::on_epoch_begin,
          &Callback::on_batch_begin,
          &Callback::on_loss_begin,
          &Callback::on_backward_begin,
          &Callback::on_backward_end,
          &Callback::on_step,
          &Callback::on_step_end,
          &Callback::on_batch_end,
          &Callback::on_epoch_end,
          &Callback::on_train_end,
          &Callback::on_eval_begin,
          &Callback::on_eval_end,
          &Callback::on_interrupt,
          &Callback::on_load};
  (callback_.get()->*kMethods[static_cast<size_t>(event)])(learn);
}

}  // namespace tern
